//! Which allocation a command is about.

use drover_api::Allocation;

use crate::cluster::connect::ConnectArgs;
use crate::completion::names;

/// An allocation, and the cluster that it is in.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AllocTarget {
    /// The allocation: its name or the beginning of it, its uid or the beginning of it, or `namespace/name`.
    #[arg(add = names::<Allocation>())]
    allocation: String,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
}

impl AllocTarget {
    /// The allocation as the agent finds it.
    pub(super) fn id(&self) -> String {
        match &self.connect.namespace {
            Some(namespace) if !self.allocation.contains('/') => format!("{namespace}/{}", self.allocation),
            Some(_) | None => self.allocation.clone(),
        }
    }

    /// Its name, and its namespace where it says so itself.
    pub(super) fn parts(&self) -> (Option<&str>, &str) {
        self.allocation.split_once('/').map_or((None, &self.allocation), |(namespace, name)| (Some(namespace), name))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        target: AllocTarget,
    }

    #[test]
    fn a_namespace_belongs_to_a_name() {
        let id = |args: &[&str]| {
            let all = std::iter::once("line").chain(args.iter().copied());
            Line::try_parse_from(all).map(|line| line.target.id()).map_err(|error| error.to_string())
        };
        assert_eq!(id(&["web-g-0-1f", "-n", "shop"]), Ok("shop/web-g-0-1f".to_owned()));
        assert_eq!(id(&["web-g-0-1f"]), Ok("web-g-0-1f".to_owned()));
        assert_eq!(id(&["shop/web-g-0-1f", "-n", "other"]), Ok("shop/web-g-0-1f".to_owned()));
    }
}
