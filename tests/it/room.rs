//! How many control planes run at a time: as many as leave the machine some of its time. Tests with one of their own
//! mostly wait, and an API server that starts takes a processor for seconds; a machine that is slow today runs fewer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procfs::{CurrentSI as _, KernelStats};
use tokio::sync::Mutex;

/// So many run whatever the machine does: each is several processes, and two processors are busy with as many.
const ALWAYS: usize = 3;
/// One more may start while at least so much of the processors' time is idle.
const MIN_IDLE_PERCENT: u64 = 30;
/// Long enough to see one that is starting.
const LOOK: Duration = Duration::from_millis(1500);

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static TURN: Mutex<()> = Mutex::const_new(());

/// The room that a control plane takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room(());

impl Room {
    /// Waits until there is room for one more, and takes it.
    pub(crate) async fn take() -> Self {
        let _turn = TURN.lock().await;
        while RUNNING.load(Ordering::Relaxed) >= ALWAYS && idle_percent().await < MIN_IDLE_PERCENT {}
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How much of the processors' time is idle just now.
async fn idle_percent() -> u64 {
    let now = || KernelStats::current().expect("what the processors do").total;
    let before = now();
    tokio::time::sleep(LOOK).await;
    let after = now();
    let ticks = |cpu: &procfs::CpuTime| {
        let idle = cpu.idle + cpu.iowait.unwrap_or(0);
        let more = [cpu.irq, cpu.softirq, cpu.steal].into_iter().flatten().sum::<u64>();
        (idle, idle + cpu.user + cpu.nice + cpu.system + more)
    };
    let ((idle_before, all_before), (idle_after, all_after)) = (ticks(&before), ticks(&after));
    100 * idle_after.saturating_sub(idle_before) / all_after.saturating_sub(all_before).max(1)
}
