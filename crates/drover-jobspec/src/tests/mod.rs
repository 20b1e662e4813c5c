//! Whole job files.

mod expressions;
mod files;
mod hostile;
mod round_trip;
mod specs;
mod wire;
mod wire_hostile;
mod wire_volume;
