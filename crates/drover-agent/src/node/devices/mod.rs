//! Devices of the node: plugins tell which there are, and what a task needs that was given some of them.
//!
//! Input: plugins behind one small trait. Output: facts for the node, reservations for tasks. Who may have which device
//! is the scheduler's and admission's: nothing here counts. Must never know what a device is for.

mod files;
mod plugins;

pub(crate) use files::FileDevices;
pub(crate) use plugins::{DevicePlugin, Devices, Reservation};
