//! The shells of drover: the controller and the node agent, around the decisions of `drover-core`.

pub mod store;
