//! Decisions about CSI volumes (`spec/volumes.md`): who may use one (`access`, `claim`), how it is released (`release`, `turn`) and
//! when anybody looks whether it is to be (`watcher`, `batch`, `operator`), what is known of its plugin (`plugin`), and what may be
//! registered (`register`, `merge`, `expand`, `quantity`). `shown` says what people see of it.

pub mod access;
pub mod batch;
pub mod claim;
pub mod expand;
pub mod merge;
pub mod operator;
pub mod plugin;
pub mod quantity;
pub mod register;
pub mod release;
pub mod shown;
pub mod turn;
pub mod watcher;

#[cfg(test)]
mod tests;
