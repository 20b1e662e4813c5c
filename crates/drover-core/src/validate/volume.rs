//! The volumes that a group asks for.

use drover_api::csi_volume::AttachmentMode;
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::volume_request::{RequestAccessMode as Mode, VolumeRequest, VolumeType};

use super::found::{At, Violations};

impl Violations {
    pub(super) fn volumes(&mut self, r#type: JobType, at: At<'_>, group: &Group) {
        let canaries = group.update.as_ref().and_then(|update| update.canary).unwrap_or(0);
        for (n, volume) in group.volumes.iter().enumerate() {
            let at = format_args!("{at}.volumes[{n}]");
            self.when(volume.source.is_empty(), "VolumeSource", format_args!("{at}.source"), "is empty; name a volume");
            if volume.per_alloc {
                self.per_alloc(r#type, at, volume, canaries);
            }
            match volume.r#type {
                VolumeType::Host => self.host_volume(at, volume),
                VolumeType::Csi => self.csi_volume(at, volume, group.count),
            }
        }
    }

    fn per_alloc(&mut self, r#type: JobType, at: At<'_>, volume: &VolumeRequest, canaries: i64) {
        let field = format_args!("{at}.perAlloc");
        let is_numbered = matches!(r#type, JobType::Service | JobType::Batch);
        let message = "is for service and batch jobs, whose allocations are numbered; remove it, or change type";
        self.when(!is_numbered, "PerAllocSystem", field, message);
        let message = "and update.canary exclude each other: a canary would need the volume of the allocation beside it; set canary to 0, or share the volume";
        self.when(canaries > 0, "PerAllocCanary", field, message);
        self.when(volume.sticky, "PerAllocSticky", field, "and sticky exclude each other; remove one of them");
    }

    fn host_volume(&mut self, at: At<'_>, volume: &VolumeRequest) {
        let message = "are for csi volumes; remove them";
        self.when(volume.mount_options.is_some(), "HostVolumeMount", format_args!("{at}.mountOptions"), message);
        let Some(mode) = volume.access_mode else { return };
        let field = format_args!("{at}.accessMode");
        let is_reader = matches!(mode, Mode::SingleNodeReader | Mode::SingleNodeReaderOnly);
        let message = format_args!("{mode} needs readOnly: true; set it, or take a writer mode");
        self.when(is_reader && !volume.read_only, "HostVolumeMount", field, message);
        let is_known = match mode {
            Mode::SingleNodeReader
            | Mode::SingleNodeReaderOnly
            | Mode::SingleNodeWriter
            | Mode::SingleNodeSingleWriter
            | Mode::SingleNodeMultiWriter => true,
            Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => false,
        };
        let message = format_args!("{mode} spans nodes, but a host volume is on one; take one of single-node-*");
        self.when(!is_known, "HostVolumeMount", field, message);
    }

    fn csi_volume(&mut self, at: At<'_>, volume: &VolumeRequest, count: i64) {
        let message = "is for host volumes; remove it";
        self.when(volume.sticky, "VolumeSticky", format_args!("{at}.sticky"), message);
        let field = format_args!("{at}.attachmentMode");
        let message = "is missing; take file-system or block-device";
        self.when(volume.attachment_mode.is_none(), "CsiAttachment", field, message);
        let is_block = volume.attachment_mode == Some(AttachmentMode::BlockDevice);
        let message = "block-device takes no mountOptions; remove them, or take file-system";
        self.when(is_block && volume.mount_options.is_some(), "CsiAttachment", field, message);
        let flags = volume.mount_options.iter().flat_map(|options| &options.mount_flags);
        let message = "a flag with a credential would be readable by everyone who may read jobs; name it in mountOptions of the CSIVolume, as password=$(key) of its secretsRef";
        let field = format_args!("{at}.mountOptions.mountFlags");
        self.when({ flags }.any(|flag| holds_credential(flag)), "MountFlagSecret", field, message);
        let field = format_args!("{at}.accessMode");
        let Some(mode) = volume.access_mode else {
            self.when(true, "CsiAccess", field, "is missing; take one such as single-node-writer");
            return;
        };
        let (is_reader, is_known) = match mode {
            Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly => (true, true),
            Mode::SingleNodeWriter | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => (false, true),
            Mode::SingleNodeReader => (true, false),
            Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter => (false, false),
        };
        let message = format_args!("{mode} is for host volumes; take single-node-reader-only or single-node-writer");
        self.when(!is_known, "CsiAccess", field, message);
        let message = format_args!("{mode} needs readOnly: true; set it, or take a writer mode");
        self.when(is_reader && !volume.read_only, "CsiReaderRO", field, message);
        let is_single = match mode {
            Mode::SingleNodeReader | Mode::SingleNodeReaderOnly | Mode::SingleNodeWriter => true,
            Mode::MultiNodeSingleWriter => !volume.read_only,
            Mode::SingleNodeSingleWriter
            | Mode::SingleNodeMultiWriter
            | Mode::MultiNodeReaderOnly
            | Mode::MultiNodeMultiWriter => false,
        };
        let message =
            format_args!("{mode} allows one user, but count is {count}; set perAlloc, another mode, or count 1");
        self.when(is_single && count > 1 && !volume.per_alloc, "CsiSingle", field, message);
    }
}

/// Whether a mount flag brings a credential along, or is to take one from a Secret, which a job's flags cannot.
fn holds_credential(flag: &str) -> bool {
    const KEYS: [&str; 12] = [
        "pass",
        "passwd",
        "password",
        "password2",
        "secret",
        "token",
        "apikey",
        "api_key",
        "accesskey",
        "access_key",
        "secretkey",
        "secret_key",
    ];
    let key = flag.split_once('=').map(|(key, _)| key.to_ascii_lowercase());
    flag.contains("$(") || key.is_some_and(|key| KEYS.contains(&key.as_str()))
}
