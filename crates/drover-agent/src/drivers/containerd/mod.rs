//! Driver `containerd`, which is `docker` too: containers of images, by the node's containerd and its runtime.
//!
//! containerd makes a container's first process; the supervisor adopts it, as it adopts what an earlier supervisor has
//! started, and from then on signals, ends, output and usage are those of driver `exec`. So tasks go on, end with their
//! code and are stopped while containerd is away. Everything is in containerd's namespace `drover.dev`; what is in
//! others is not touched.

mod container_driver;
mod image_facts;
mod image_user;
mod keeper;
mod machine;
mod maker;
mod node_containers;
mod node_images;
mod runtime_spec;
mod settings;

pub(crate) use container_driver::ContainerDriver;
pub(crate) use keeper::keep;
pub use maker::make_container;
pub(crate) use node_containers::{ContainerdState, Discards, NodeContainers};
pub(crate) use settings::{ContainerRights, ContainerSettings};
