//! Cases of `spec/scheduler.md` 3.2 and 3.3, and slots beside a list that is searched from the front.

mod classes;
mod due;
mod slots;
mod winners;
