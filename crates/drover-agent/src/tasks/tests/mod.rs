//! Single tasks with the mock driver, on a paused clock: what takes minutes is over at once, and times are exact.

mod artifacts;
mod commands;
mod ends;
mod hooks;
mod identities;
mod kills;
mod restore;
mod scripted_values;
mod secrets;
mod starts;
mod templates;
mod turns;
mod words;
mod world;
