//! The driver's name.

/// As the identity service and the kubelet's registration say it.
pub(crate) const NAME: &str = "hostdir.csi.drover.dev";
