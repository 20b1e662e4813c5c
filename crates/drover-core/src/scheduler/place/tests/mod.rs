//! Tests of what placements are chosen by.

mod order;
mod spreads;
mod table;
