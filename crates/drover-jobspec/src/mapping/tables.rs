//! What each block of a job file holds, and the fields that it becomes (`spec/api.md`, section 7).

use super::convert::Shape::{
    Block, Blocks, Bool, Duration, Free, Other, Refused, Text, TextMap, Texts, TextsMap, Whole,
};
use super::convert::{Adjust, Row, Table, row};
use super::{sugar, template_objects};

const VAULT: &str = "drover has no Vault; take Secrets by `secrets`, or an identity that Vault trusts";
const CONSUL: &str = "drover has no Consul; a `service` block becomes a Kubernetes Service";
const CONNECT: &str = "drover has no service mesh of its own; use the cluster's";

const fn plain(rows: &'static [Row]) -> Table {
    Table { label: None, rows, adjust: None }
}

const fn labelled(label: &'static str, rows: &'static [Row]) -> Table {
    Table { label: Some(label), rows, adjust: None }
}

const fn adjusted(rows: &'static [Row], adjust: Adjust) -> Table {
    Table { label: None, rows, adjust: Some(adjust) }
}

static CONSTRAINT: Table = adjusted(
    &[
        row("attribute", "lTarget", Text),
        row("operator", "operand", Text),
        row("value", "rTarget", Text),
        row("version", "", Other),
        row("semver", "", Other),
        row("regexp", "", Other),
        row("set_contains", "", Other),
        row("set_contains_all", "", Other),
        row("set_contains_any", "", Other),
        row("distinct_hosts", "", Other),
        row("distinct_property", "", Other),
        row("is_set", "", Other),
        row("is_not_set", "", Other),
    ],
    sugar::operand,
);

static AFFINITY: Table = adjusted(
    &[
        row("attribute", "lTarget", Text),
        row("operator", "operand", Text),
        row("value", "rTarget", Text),
        row("weight", "weight", Whole),
        row("version", "", Other),
        row("semver", "", Other),
        row("regexp", "", Other),
        row("set_contains", "", Other),
        row("set_contains_all", "", Other),
        row("set_contains_any", "", Other),
    ],
    sugar::operand,
);

static SPREAD: Table = plain(&[
    row("attribute", "attribute", Text),
    row("weight", "weight", Whole),
    row(
        "target",
        "targets",
        Blocks(&labelled("value", &[row("percent", "percent", Whole), row("value", "value", Text)])),
    ),
]);

static UPDATE: Table = plain(&[
    row("max_parallel", "maxParallel", Whole),
    row("health_check", "healthCheck", Text),
    row("min_healthy_time", "minHealthyTime", Duration),
    row("healthy_deadline", "healthyDeadline", Duration),
    row("progress_deadline", "progressDeadline", Duration),
    row("auto_revert", "autoRevert", Bool),
    row("auto_promote", "autoPromote", Bool),
    row("canary", "canary", Whole),
    row("stagger", "stagger", Duration),
]);

static MIGRATE: Table = plain(&[
    row("max_parallel", "maxParallel", Whole),
    row("health_check", "healthCheck", Text),
    row("min_healthy_time", "minHealthyTime", Duration),
    row("healthy_deadline", "healthyDeadline", Duration),
]);

static RESCHEDULE: Table = plain(&[
    row("attempts", "attempts", Whole),
    row("interval", "interval", Duration),
    row("delay", "delay", Duration),
    row("delay_function", "delayFunction", Text),
    row("max_delay", "maxDelay", Duration),
    row("unlimited", "unlimited", Bool),
]);

static RESTART: Table = plain(&[
    row("attempts", "attempts", Whole),
    row("interval", "interval", Duration),
    row("delay", "delay", Duration),
    row("mode", "mode", Text),
    row("render_templates", "renderTemplates", Bool),
]);

static DISCONNECT: Table = plain(&[
    row("lost_after", "lostAfter", Duration),
    row("replace", "replace", Bool),
    row("reconcile", "reconcile", Text),
    row("stop_on_client_after", "stopOnClientAfter", Duration),
]);

static NETWORK: Table = plain(&[
    row("mode", "mode", Text),
    row("hostname", "hostname", Text),
    row("mbits", "mbits", Whole),
    row(
        "port",
        "ports",
        Blocks(&labelled(
            "label",
            &[
                row("static", "static", Whole),
                row("to", "to", Whole),
                row("host_network", "hostNetwork", Text),
                row("ignore_collision", "ignoreCollision", Bool),
            ],
        )),
    ),
    row(
        "dns",
        "dns",
        Block(&plain(&[
            row("servers", "servers", Texts),
            row("searches", "searches", Texts),
            row("options", "options", Texts),
        ])),
    ),
    row("cni", "cni", Block(&plain(&[row("args", "args", TextMap)]))),
]);

static MOUNT_OPTIONS: Table = plain(&[row("fs_type", "fsType", Text), row("mount_flags", "mountFlags", Texts)]);

static VOLUME: Table = labelled(
    "name",
    &[
        row("type", "type", Text),
        row("source", "source", Text),
        row("read_only", "readOnly", Bool),
        row("access_mode", "accessMode", Text),
        row("attachment_mode", "attachmentMode", Text),
        row("per_alloc", "perAlloc", Bool),
        row("sticky", "sticky", Bool),
        row("mount_options", "mountOptions", Block(&MOUNT_OPTIONS)),
    ],
);

static CHECK_RESTART: Table = plain(&[
    row("limit", "limit", Whole),
    row("grace", "grace", Duration),
    row("ignore_warnings", "ignoreWarnings", Bool),
]);

static CHECK: Table = plain(&[
    row("name", "name", Text),
    row("type", "type", Text),
    row("interval", "interval", Duration),
    row("timeout", "timeout", Duration),
    row("path", "path", Text),
    row("method", "method", Text),
    row("header", "header", TextsMap),
    row("body", "body", Text),
    row("protocol", "protocol", Text),
    row("tls_skip_verify", "tlsSkipVerify", Bool),
    row("command", "command", Text),
    row("args", "args", Texts),
    row("task", "task", Text),
    row("grpc_service", "grpcService", Text),
    row("grpc_use_tls", "grpcUseTLS", Bool),
    row("port", "portLabel", Text),
    row("address_mode", "addressMode", Text),
    row("on_update", "onUpdate", Text),
    row("check_restart", "checkRestart", Block(&CHECK_RESTART)),
    row("expose", "", Refused(CONNECT)),
    row("success_before_passing", "", Refused(CONSUL)),
    row("failures_before_critical", "", Refused("give `check_restart` a limit, or the check a longer interval")),
    row("failures_before_warning", "", Refused(CONSUL)),
    row(
        "tls_server_name",
        "",
        Refused("the name in the certificate is that of the address; use `tls_skip_verify`, or another check"),
    ),
    row("notes", "", Refused("it is shown by Consul only; write a comment")),
]);

static SERVICE: Table = adjusted(
    &[
        row("name", "name", Text),
        row("port", "portLabel", Text),
        row("provider", "provider", Text),
        row("address_mode", "addressMode", Text),
        row("address", "address", Text),
        row("tags", "tags", Texts),
        row("canary_tags", "canaryTags", Texts),
        row("meta", "meta", TextMap),
        row("task", "task", Text),
        row("check", "checks", Blocks(&CHECK)),
        row("check_restart", sugar::CHECK_RESTART, Block(&CHECK_RESTART)),
        row("on_update", sugar::ON_UPDATE, Text),
        row("connect", "", Refused(CONNECT)),
        row("canary_meta", "", Refused("tag canaries by `canary_tags`")),
        row("tagged_addresses", "", Refused(CONSUL)),
        row("enable_tag_override", "", Refused(CONSUL)),
        row("weights", "", Refused("a Kubernetes Service has no weights")),
        row("cluster", "", Refused(CONSUL)),
        row("identity", "", Refused(CONSUL)),
        row("kind", "", Refused(CONSUL)),
    ],
    sugar::service,
);

static SCALING: Table = plain(&[
    row("min", "min", Whole),
    row("max", "max", Whole),
    row("enabled", "enabled", Bool),
    row("policy", "policy", Free),
]);

static DEVICE: Table = labelled(
    "name",
    &[
        row("count", "count", Whole),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
    ],
);

static RESOURCES: Table = plain(&[
    row("cpu", "cpu", Whole),
    row("cores", "cores", Whole),
    row("memory", "memoryMB", Whole),
    row("memory_max", "memoryMaxMB", Whole),
    row("secrets", "secretsMB", Whole),
    row("device", "devices", Blocks(&DEVICE)),
    row("numa", "numa", Block(&plain(&[row("affinity", "affinity", Text)]))),
    row("network", "", Refused("ports belong to the group; move the block `network` there")),
    row("iops", "", Refused("there is no such resource; remove it")),
    row("disk", "", Refused("disk belongs to the group; write `ephemeral_disk { size = … }` there")),
]);

static TEMPLATE: Table = plain(&[
    row("data", "embeddedTmpl", Text),
    row("source", "sourcePath", Text),
    row("destination", "destPath", Text),
    row("change_mode", "changeMode", Text),
    row("change_signal", "changeSignal", Text),
    row(
        "change_script",
        "changeScript",
        Block(&plain(&[
            row("command", "command", Text),
            row("args", "args", Texts),
            row("timeout", "timeout", Duration),
            row("fail_on_error", "failOnError", Bool),
            row("run_on_first_render", "runOnFirstRender", Bool),
        ])),
    ),
    row("splay", "splay", Duration),
    row("perms", "perms", Text),
    row("uid", "uid", Whole),
    row("gid", "gid", Whole),
    row("env", "envvars", Bool),
    row("once", "once", Bool),
    row("error_on_missing_key", "errMissingKey", Bool),
    row("wait", "wait", Block(&plain(&[row("min", "min", Duration), row("max", "max", Duration)]))),
    row("left_delimiter", "leftDelimiter", Text),
    row("right_delimiter", "rightDelimiter", Text),
    row("vault_grace", "", Refused(VAULT)),
]);

static ARTIFACT: Table = plain(&[
    row("source", "getterSource", Text),
    row("destination", "relativeDest", Text),
    row("mode", "getterMode", Text),
    row("options", "getterOptions", TextMap),
    row("headers", "getterHeaders", TextMap),
    row("chown", "chown", Bool),
    row("insecure", "", Refused("certificates are always checked; serve the file with one that is trusted")),
]);

static IDENTITY: Table = adjusted(
    &[
        row("name", "name", Text),
        row("aud", "aud", Texts),
        row("env", "env", Bool),
        row("file", "file", Bool),
        row("filepath", "filepath", Text),
        row("change_mode", "changeMode", Text),
        row("change_signal", "changeSignal", Text),
        row("ttl", "ttl", Duration),
        row("extra_claims", "extraClaims", TextMap),
    ],
    sugar::identity,
);

static TASK: Table = Table {
    label: Some("name"),
    rows: &[
        row("driver", "driver", Text),
        row("config", "config", Free),
        row("env", "env", TextMap),
        row("user", "user", Text),
        row("leader", "leader", Bool),
        row("kill_timeout", "killTimeout", Duration),
        row("kill_signal", "killSignal", Text),
        row("shutdown_delay", "shutdownDelay", Duration),
        row("meta", "meta", TextMap),
        row("lifecycle", "lifecycle", Block(&plain(&[row("hook", "hook", Text), row("sidecar", "sidecar", Bool)]))),
        row("resources", "resources", Block(&RESOURCES)),
        row(
            "logs",
            "logs",
            Block(&adjusted(
                &[
                    row("max_files", "maxFiles", Whole),
                    row("max_file_size", "maxFileSizeMB", Whole),
                    row("disabled", "disabled", Bool),
                    row("enabled", "", Other),
                ],
                sugar::logs,
            )),
        ),
        row(
            "volume_mount",
            "volumeMounts",
            Blocks(&plain(&[
                row("volume", "volume", Text),
                row("destination", "destination", Text),
                row("read_only", "readOnly", Bool),
                row("propagation_mode", "propagationMode", Text),
                row("selinux_label", "selinuxLabel", Text),
            ])),
        ),
        row("template", "templates", Blocks(&TEMPLATE)),
        row("artifact", "artifacts", Blocks(&ARTIFACT)),
        row("service", "services", Blocks(&SERVICE)),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
        row("restart", "restart", Block(&RESTART)),
        row("dispatch_payload", "dispatchPayload", Block(&plain(&[row("file", "file", Text)]))),
        row(
            "csi_plugin",
            "csiPlugin",
            Block(&plain(&[
                row("id", "id", Text),
                row("type", "type", Text),
                row("mount_dir", "mountDir", Text),
                row("stage_publish_base_dir", "stagePublishBaseDir", Text),
                row("health_timeout", "healthTimeout", Duration),
            ])),
        ),
        row("identity", "identities", Blocks(&IDENTITY)),
        row(
            "action",
            "actions",
            Blocks(&labelled("name", &[row("command", "command", Text), row("args", "args", Texts)])),
        ),
        row("vault", "", Refused(VAULT)),
        row("consul", "", Refused(CONSUL)),
        row(
            "secret",
            "secrets",
            Blocks(&labelled("name", &[row("provider", "provider", Text), row("path", "path", Text)])),
        ),
        row("kind", "", Refused(CONNECT)),
        row("scaling", "", Refused("tasks are not scaled; write `scaling` into the group")),
        row("schedule", "", Refused("use a periodic job")),
    ],
    adjust: Some(template_objects::list),
};

static GROUP: Table = Table {
    label: Some("name"),
    rows: &[
        row("count", "count", Whole),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
        row("spread", "spreads", Blocks(&SPREAD)),
        row("update", "update", Block(&UPDATE)),
        row("migrate", "migrate", Block(&MIGRATE)),
        row("reschedule", "reschedule", Block(&RESCHEDULE)),
        row("restart", "restart", Block(&RESTART)),
        row("disconnect", "disconnect", Block(&DISCONNECT)),
        row("max_client_disconnect", "maxClientDisconnect", Duration),
        row("stop_after_client_disconnect", "stopAfterClientDisconnect", Duration),
        row("prevent_reschedule_on_lost", "preventRescheduleOnLost", Bool),
        row(
            "ephemeral_disk",
            "ephemeralDisk",
            Block(&plain(&[
                row("size", "sizeMB", Whole),
                row("sticky", "sticky", Bool),
                row("migrate", "migrate", Bool),
            ])),
        ),
        row("network", "networks", Blocks(&NETWORK)),
        row("service", "services", Blocks(&SERVICE)),
        row("volume", "volumes", Blocks(&VOLUME)),
        row("scaling", "scaling", Block(&SCALING)),
        row("shutdown_delay", "shutdownDelay", Duration),
        row("max_run_duration", "maxRunDuration", Duration),
        row("meta", "meta", TextMap),
        row("task", "tasks", Blocks(&TASK)),
        row("vault", "", Refused(VAULT)),
        row("consul", "", Refused(CONSUL)),
    ],
    adjust: None,
};

pub(super) static JOB: Table = Table {
    label: Some("id"),
    rows: &[
        row("name", "name", Text),
        row("type", "type", Text),
        row("priority", "priority", Whole),
        row("region", "region", Text),
        row("namespace", "namespace", Text),
        row("datacenters", "datacenters", Texts),
        row("node_pool", "nodePool", Text),
        row("all_at_once", "allAtOnce", Bool),
        row("meta", "meta", TextMap),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
        row("spread", "spreads", Blocks(&SPREAD)),
        row("update", "update", Block(&UPDATE)),
        row(
            "periodic",
            "periodic",
            Block(&adjusted(
                &[
                    row("cron", "", Other),
                    row("crons", "crons", Texts),
                    row("time_zone", "timeZone", Text),
                    row("prohibit_overlap", "prohibitOverlap", Bool),
                    row("enabled", "enabled", Bool),
                ],
                sugar::periodic,
            )),
        ),
        row(
            "parameterized",
            "parameterized",
            Block(&plain(&[
                row("payload", "payload", Text),
                row("meta_required", "metaRequired", Texts),
                row("meta_optional", "metaOptional", Texts),
            ])),
        ),
        row(
            "multiregion",
            "multiregion",
            Block(&plain(&[
                row(
                    "strategy",
                    "strategy",
                    Block(&plain(&[row("max_parallel", "maxParallel", Whole), row("on_failure", "onFailure", Text)])),
                ),
                row(
                    "region",
                    "regions",
                    Blocks(&labelled(
                        "name",
                        &[
                            row("count", "count", Whole),
                            row("datacenters", "datacenters", Texts),
                            row("node_pool", "nodePool", Text),
                            row("meta", "meta", TextMap),
                        ],
                    )),
                ),
            ])),
        ),
        row("group", "groups", Blocks(&GROUP)),
        row("task", sugar::TASKS, Blocks(&TASK)),
        row("migrate", sugar::MIGRATE, Block(&MIGRATE)),
        row("reschedule", sugar::RESCHEDULE, Block(&RESCHEDULE)),
        row("vault", "", Refused(VAULT)),
        row("consul", "", Refused(CONSUL)),
        row("vault_token", "", Refused(VAULT)),
        row("consul_token", "", Refused(CONSUL)),
        row("ui", "", Refused("drover shows no links of a job; put them into `meta`")),
    ],
    adjust: Some(sugar::job),
};

pub(super) static VOLUME_FILE: Table = adjusted(
    &[
        row("id", "id", Text),
        row("name", "name", Text),
        row("namespace", "namespace", Text),
        row("type", "type", Text),
        row("plugin_id", "pluginID", Text),
        row("external_id", "externalID", Text),
        row("capacity_min", "", Other),
        row("capacity_max", "", Other),
        row(
            "capability",
            "capabilities",
            Blocks(&plain(&[row("access_mode", "accessMode", Text), row("attachment_mode", "attachmentMode", Text)])),
        ),
        row("mount_options", "mountOptions", Block(&MOUNT_OPTIONS)),
        row("secrets", "secrets", TextMap),
        row("parameters", "parameters", TextMap),
        row("context", "context", TextMap),
        row(
            "topology_request",
            "topologyRequest",
            Block(&plain(&[row("required", "required", Other), row("preferred", "preferred", Other)])),
        ),
        row("clone_id", "cloneID", Text),
        row("snapshot_id", "snapshotID", Text),
        row("access_mode", "", Refused("write a block `capability`")),
        row("attachment_mode", "", Refused("write a block `capability`")),
    ],
    sugar::volume,
);
