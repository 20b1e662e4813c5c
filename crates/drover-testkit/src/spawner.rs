//! Starts child processes from one thread that lives as long as this process.
//!
//! A parent death signal follows the *thread* that forked. Test threads end with their test, so a child that should
//! live as long as the test binary (and no longer, even if that is killed) must be forked by a thread that never ends.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::sys;

type Order = (Command, SyncSender<io::Result<Child>>);

/// Spawns `command`, whose process gets SIGKILL when this process ends.
pub fn spawn_bound_to_this_process(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<SyncSender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, receiver) = sync_channel::<Order>(1);
        // Never joined: the thread ends with the process, which is what it is for.
        std::thread::spawn(move || spawn_orders(&receiver));
        sender
    });
    let (reply, answer) = sync_channel(1);
    let gone = || io::Error::other("the spawning thread has ended");
    orders.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn spawn_orders(orders: &Receiver<Order>) {
    while let Ok((mut command, reply)) = orders.recv() {
        sys::die_with_spawning_thread(&mut command);
        // An asker that has gone away does not wait for the answer; its child ends with the dropped handle's owner, us.
        if let Err(unread) = reply.send(command.spawn())
            && let Ok(mut child) = unread.0
            && child.kill().is_ok()
        {
            child.wait().ok();
        }
    }
}
