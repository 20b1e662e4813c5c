//! The server of `web.yaml` and `canary/`: answers every HTTP request with its greeting and the index of its
//! allocation. A greeting that is set but empty is a mistake that it does not start with.
//!
//! It needs the standard library only, and learns everything from the environment that drover gives a task. On SIGTERM
//! the kernel ends it at once; a request takes microseconds, so none is interrupted in practice.

use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn main() -> io::Result<()> {
    let port: u16 = variable("NOMAD_PORT_http")?.parse().map_err(io::Error::other)?;
    let host = env::var("NOMAD_IP_http").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let greeting = env::var("GREETING").unwrap_or_else(|_| "hello".to_owned());
    if greeting.is_empty() {
        return Err(io::Error::other("GREETING is empty: there is nothing to answer with"));
    }
    let (index, job) = (variable("NOMAD_ALLOC_INDEX")?, variable("NOMAD_JOB_NAME")?);
    let body = format!("{greeting} from allocation {index} of job {job}\n");
    let listener = TcpListener::bind((host.as_str(), port))?;
    writeln!(io::stdout(), "listening on http://{host}:{port}")?;
    for client in listener.incoming() {
        // One client at a time, each with little time: enough for an example. Its mistakes do not end the server.
        if let Err(error) = client.and_then(|client| answer(client, &body)) {
            writeln!(io::stderr(), "a request was not answered: {error}")?;
        }
    }
    Ok(())
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(|_| {
        io::Error::other(format!("{name} is not set: this program is a task of a drover job, see web.yaml"))
    })
}

fn answer(mut client: TcpStream, body: &str) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    client.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut request = BufReader::new(client.try_clone()?);
    let mut line = String::new();
    // The request's head ends with an empty line.
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
