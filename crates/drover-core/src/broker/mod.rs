//! Which job is evaluated next, and which ones wait until something becomes free (`spec/scheduler.md` 2.3 to 2.5).

pub mod blocked;
pub mod queue;

#[cfg(test)]
mod tests;
