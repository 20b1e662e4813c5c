//! Ports that are opened, moved and closed, over loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::orders::{Forward, ForwardAnswer, ForwardOrder};
use crate::ports::Ports;

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// How long something may take that is certain.
const LONG: Duration = Duration::from_mins(1);

/// A program in an allocation: says its name, then what it hears, and ends when it hears the end.
struct Inside {
    at: SocketAddrV4,
    _serving: AbortOnDropHandle<()>,
}

impl Inside {
    async fn new(name: u8) -> Self {
        let listener = TcpListener::bind((LOCAL, 0)).await.expect("a port");
        let at = SocketAddrV4::new(LOCAL, listener.local_addr().expect("an address").port());
        let serve = async move {
            let mut talks = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                talks.spawn(async move {
                    let (mut from, mut to) = stream.split();
                    to.write_all(&[name]).await?;
                    tokio::io::copy(&mut from, &mut to).await?;
                    to.shutdown().await
                });
            }
        };
        #[expect(clippy::disallowed_methods, reason = "ended with this")]
        let serving = AbortOnDropHandle::new(tokio::spawn(serve));
        Self { at, _serving: serving }
    }
}

/// A port that no process listens on, on a loopback address that no other port is on.
async fn free_port() -> SocketAddrV4 {
    static N_GIVEN: AtomicU8 = AtomicU8::new(0);
    let address = Ipv4Addr::new(127, 9, 1, N_GIVEN.fetch_add(1, Ordering::Relaxed) + 1);
    let listener = TcpListener::bind((address, 0)).await.expect("a port");
    SocketAddrV4::new(address, listener.local_addr().expect("an address").port())
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("in time")
}

/// Who answers at a port; none: it is not listened on.
async fn who(at: SocketAddrV4) -> Option<u8> {
    let mut stream = match TcpStream::connect(at).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return None,
        stream => stream.expect("a connection"),
    };
    Some(in_time(stream.read_u8()).await.expect("a name"))
}

fn forward(from: SocketAddrV4, to: &Inside) -> Forward {
    Forward { from, to: to.at }
}

#[tokio::test]
async fn both_directions_are_carried_to_their_own_ends() {
    let (inside, from) = (Inside::new(7).await, free_port().await);
    let mut ports = Ports::new();
    assert_eq!(ports.carry_out(ForwardOrder::Open(vec![forward(from, &inside)])), ForwardAnswer::default());
    let mut client = TcpStream::connect(from).await.expect("a connection");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut read, mut write) = client.split();
    let send = async {
        write.write_all(&bytes).await.expect("sent");
        // The other direction goes on after this one has ended.
        write.shutdown().await.expect("ended");
    };
    let mut heard = Vec::new();
    let ((), read) = in_time(async { tokio::join!(send, read.read_to_end(&mut heard)) }).await;
    read.expect("everything");
    assert_eq!(heard[0], 7);
    assert!(heard[1..] == bytes, "{} of {} bytes came back", heard.len() - 1, bytes.len());
}

#[tokio::test]
async fn a_program_that_does_not_answer_is_a_broken_connection() {
    let (nothing, from) = (free_port().await, free_port().await);
    let mut ports = Ports::new();
    ports.carry_out(ForwardOrder::Open(vec![Forward { from, to: nothing }]));
    let mut client = TcpStream::connect(from).await.expect("a connection");
    let error = in_time(client.read_u8()).await.expect_err("broken");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

#[tokio::test]
async fn closing_breaks_connections_and_an_older_forwarder_carries_its_own_to_their_ends() {
    let (inside, from, other) = (Inside::new(7).await, free_port().await, free_port().await);
    let mut ports = Ports::new();
    ports.carry_out(ForwardOrder::Open(vec![forward(from, &inside), forward(other, &inside)]));
    let mut broken = TcpStream::connect(from).await.expect("a connection");
    let mut whole = TcpStream::connect(other).await.expect("a connection");
    for client in [&mut broken, &mut whole] {
        assert_eq!(in_time(client.read_u8()).await.expect("a name"), 7);
    }
    ports.carry_out(ForwardOrder::Close(vec![forward(from, &inside)]));
    let error = in_time(broken.read_u8()).await.expect_err("broken");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");

    // As the next build does: it listens too before this one is told to end.
    let mut next = Ports::new();
    assert_eq!(next.carry_out(ForwardOrder::Exactly(vec![forward(other, &inside)])), ForwardAnswer::default());
    ports.carry_out(ForwardOrder::Exactly(Vec::new()));
    whole.write_u8(9).await.expect("sent");
    assert_eq!(in_time(whole.read_u8()).await.expect("an echo"), 9);
    assert!(tokio::time::timeout(Duration::ZERO, ports.all_done()).await.is_err(), "a connection is left");
    drop(whole);
    in_time(ports.all_done()).await;
    assert_eq!(who(other).await, Some(7), "the next one listens");
}

#[tokio::test]
async fn a_port_that_another_program_holds_is_refused_by_name_and_the_others_are_opened() {
    let inside = Inside::new(7).await;
    let (held, from) = (free_port().await, free_port().await);
    let holder = std::net::TcpListener::bind(held).expect("a port");
    let mut ports = Ports::new();
    let answer = ports.carry_out(ForwardOrder::Exactly(vec![forward(held, &inside), forward(from, &inside)]));
    let [refused] = &answer.refused[..] else { panic!("{answer:?}") };
    assert_eq!(refused.from, held);
    assert!(refused.reason.contains("in use"), "{}", refused.reason);
    assert_eq!(who(from).await, Some(7));
    drop(holder);
    assert_eq!(ports.carry_out(ForwardOrder::Open(vec![forward(held, &inside)])), ForwardAnswer::default());
    assert_eq!(who(held).await, Some(7));
}

fn set(list: &mut [Option<u8>; 4], picks: &[(usize, u8)]) {
    for (from, to) in picks {
        list[*from] = Some(*to);
    }
}

/// The oracle: a list of who is behind each port, from the orders' own words.
#[tokio::test]
async fn ports_lead_where_a_plain_list_says() {
    let insides = [Inside::new(0).await, Inside::new(1).await, Inside::new(2).await];
    let froms = [free_port().await, free_port().await, free_port().await, free_port().await];
    let (mut ports, mut list) = (Ports::new(), [None; 4]);
    let mut random = fastrand::Rng::with_seed(11);
    for step in 0..400 {
        let picks: Vec<(usize, u8)> = (0..random.usize(0..4)).map(|_| (random.usize(0..4), random.u8(0..3))).collect();
        let forwards = picks.iter().map(|(from, to)| forward(froms[*from], &insides[usize::from(*to)])).collect();
        let order = match random.u8(0..3) {
            0 => {
                list = [None; 4];
                set(&mut list, &picks);
                ForwardOrder::Exactly(forwards)
            }
            1 => {
                set(&mut list, &picks);
                ForwardOrder::Open(forwards)
            }
            _ => {
                for (from, to) in &picks {
                    list[*from] = list[*from].filter(|it| it != to);
                }
                ForwardOrder::Close(forwards)
            }
        };
        let told = format!("{order:?}");
        assert_eq!(ports.carry_out(order), ForwardAnswer::default(), "{told}");
        // Listeners that were told to end have their turn.
        tokio::task::yield_now().await;
        for (from, wanted) in froms.iter().zip(list) {
            assert_eq!(who(*from).await, wanted, "port {from} after step {step}, {told}");
        }
    }
}
