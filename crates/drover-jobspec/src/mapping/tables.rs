//! What each block of a job file holds, and the fields that it becomes (`spec/api.md`, section 7).

use super::table::Absence::{self, Null, NullOnly, Number, NumberOrZero, Omitted};
use super::table::Shape::{Block, Blocks, Bool, Duration, Free, Other, Refused, Text, TextMap, Texts, TextsMap, Whole};
use super::table::{Adjust, Row, Table, row};
use super::{shapes, sugar, template_objects};

const VAULT: &str = "drover has no Vault; take Secrets by `secrets`, or an identity that Vault trusts";
const CONSUL: &str = "drover has no Consul; a `service` block becomes a Kubernetes Service";
const CONNECT: &str = "drover has no service mesh of its own; use the cluster's";

/// One second, in nanoseconds.
const SECOND: i64 = 1_000_000_000;

const fn plain(rows: &'static [Row]) -> Table {
    Table { label: None, rows, adjust: None, restore: None, wire: None, read_only: &[] }
}

const fn labelled(label: &'static str, rows: &'static [Row]) -> Table {
    Table { label: Some(label), ..plain(rows) }
}

const fn adjusted(rows: &'static [Row], adjust: Adjust) -> Table {
    Table { adjust: Some(adjust), ..plain(rows) }
}

/// This text, or nothing.
const fn or(text: &'static str) -> Absence {
    Absence::Text(text)
}

/// This value, or the other one.
const fn usually(value: bool) -> Absence {
    Absence::Bool(value)
}

static CONSTRAINT: Table = adjusted(
    &[
        row("attribute", "lTarget", Text),
        row("operator", "operand", Text).absent(or("=")),
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
        row("operator", "operand", Text).absent(or("=")),
        row("value", "rTarget", Text),
        row("weight", "weight", Whole).absent(Number(50)),
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
    row("weight", "weight", Whole).absent(Number(50)),
    row(
        "target",
        "targets",
        Blocks(&labelled("value", &[row("percent", "percent", Whole), row("value", "value", Text)])),
    )
    .named("SpreadTarget"),
]);

static UPDATE: Table = plain(&[
    row("max_parallel", "maxParallel", Whole).absent(NullOnly),
    row("health_check", "healthCheck", Text),
    row("min_healthy_time", "minHealthyTime", Duration).absent(NullOnly),
    row("healthy_deadline", "healthyDeadline", Duration).absent(NullOnly),
    row("progress_deadline", "progressDeadline", Duration).absent(NullOnly),
    row("auto_revert", "autoRevert", Bool).absent(NullOnly),
    row("auto_promote", "autoPromote", Bool).absent(NullOnly),
    row("canary", "canary", Whole).absent(NullOnly),
    row("stagger", "stagger", Duration).absent(Number(30 * SECOND)),
]);

static MIGRATE: Table = plain(&[
    row("max_parallel", "maxParallel", Whole).absent(NullOnly),
    row("health_check", "healthCheck", Text),
    row("min_healthy_time", "minHealthyTime", Duration).absent(NullOnly),
    row("healthy_deadline", "healthyDeadline", Duration).absent(NullOnly),
]);

static RESCHEDULE: Table = plain(&[
    row("attempts", "attempts", Whole).absent(NullOnly),
    row("interval", "interval", Duration),
    row("delay", "delay", Duration).absent(NullOnly),
    row("delay_function", "delayFunction", Text),
    row("max_delay", "maxDelay", Duration),
    row("unlimited", "unlimited", Bool).absent(NullOnly),
]);

static RESTART: Table = plain(&[
    row("attempts", "attempts", Whole).absent(NullOnly),
    row("interval", "interval", Duration).absent(NullOnly),
    row("delay", "delay", Duration).absent(NullOnly),
    row("mode", "mode", Text),
    row("render_templates", "renderTemplates", Bool).absent(NullOnly),
]);

static DISCONNECT: Table = plain(&[
    row("lost_after", "lostAfter", Duration).absent(Null),
    row("replace", "replace", Bool).absent(usually(true)),
    row("reconcile", "reconcile", Text).absent(or("best_score")),
    row("stop_on_client_after", "stopOnClientAfter", Duration).absent(Null),
]);

static NETWORK: Table = Table {
    adjust: Some(sugar::network),
    restore: Some(sugar::restore_network),
    wire: Some(shapes::NETWORK),
    ..plain(&[
        row("mode", "mode", Text).absent(or("host")),
        row("hostname", "hostname", Text),
        row("mbits", "mbits", Whole).named("MBits"),
        row(
            "port",
            "ports",
            Blocks(&labelled(
                "label",
                &[
                    row("static", "static", Whole).named("Value"),
                    row("to", "to", Whole),
                    row("host_network", "hostNetwork", Text).absent(or("default")),
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
        )
        .named("DNS")
        .absent(Null),
        row("cni", "cni", Block(&plain(&[row("name", "name", Text).absent(Omitted), row("args", "args", TextMap)])))
            .named("CNI")
            .absent(Null),
    ])
};

static MOUNT_OPTIONS: Table =
    plain(&[row("fs_type", "fsType", Text).named("FSType"), row("mount_flags", "mountFlags", Texts)]);

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
        row("mount_options", "mountOptions", Block(&MOUNT_OPTIONS)).absent(Null),
    ],
);

static CHECK_RESTART: Table = plain(&[
    row("limit", "limit", Whole),
    row("grace", "grace", Duration).absent(Number(SECOND)),
    row("ignore_warnings", "ignoreWarnings", Bool),
]);

static CHECK: Table = plain(&[
    row("name", "name", Text),
    row("type", "type", Text),
    row("interval", "interval", Duration).absent(NullOnly),
    row("timeout", "timeout", Duration).absent(NullOnly),
    row("path", "path", Text),
    row("method", "method", Text),
    row("header", "header", TextsMap),
    row("body", "body", Text),
    row("protocol", "protocol", Text),
    row("tls_skip_verify", "tlsSkipVerify", Bool).named("TLSSkipVerify"),
    row("command", "command", Text),
    row("args", "args", Texts),
    row("task", "task", Text).named("TaskName"),
    row("grpc_service", "grpcService", Text).named("GRPCService"),
    row("grpc_use_tls", "grpcUseTLS", Bool).named("GRPCUseTLS"),
    row("port", "portLabel", Text),
    row("address_mode", "addressMode", Text),
    row("on_update", "onUpdate", Text),
    row("check_restart", "checkRestart", Block(&CHECK_RESTART)).absent(NullOnly),
    row("expose", "", Refused(CONNECT)),
    row("success_before_passing", "", Refused(CONSUL)),
    row("failures_before_critical", "", Refused("give `check_restart` a limit, or the check a longer interval")),
    row("failures_before_warning", "", Refused(CONSUL)),
    row(
        "tls_server_name",
        "",
        Refused("the name in the certificate is that of the address; use `tls_skip_verify`, or another check"),
    )
    .named("TLSServerName"),
    row("notes", "", Refused("it is shown by Consul only; write a comment")),
]);

static SERVICE: Table = Table {
    adjust: Some(sugar::service),
    restore: Some(sugar::restore_service),
    wire: Some(shapes::SERVICE),
    read_only: &["Namespace"],
    ..plain(&[
        row("name", "name", Text),
        row("port", "portLabel", Text),
        row("provider", "provider", Text).absent(or("nomad")),
        row("address_mode", "addressMode", Text).absent(or("auto")),
        row("address", "address", Text),
        row("tags", "tags", Texts),
        row("canary_tags", "canaryTags", Texts),
        row("meta", "meta", TextMap),
        row("task", "task", Text).named("TaskName"),
        row("check", "checks", Blocks(&CHECK)),
        row(
            "kubernetes",
            "kubernetes",
            Block(&plain(&[
                row("port", "port", Whole),
                row("headless", "headless", Bool),
                row("app_protocol", "appProtocol", Text),
            ])),
        )
        .absent(Omitted),
        row("check_restart", sugar::CHECK_RESTART, Block(&CHECK_RESTART)).named("CheckRestart").absent(Omitted),
        row("on_update", sugar::ON_UPDATE, Text).named("OnUpdate").absent(Omitted),
        row("connect", "", Refused(CONNECT)),
        row("canary_meta", "", Refused("tag canaries by `canary_tags`")),
        row("tagged_addresses", "", Refused(CONSUL)),
        row("enable_tag_override", "", Refused(CONSUL)),
        row("weights", "", Refused("a Kubernetes Service has no weights")),
        row("cluster", "", Refused(CONSUL)),
        row("identity", "", Refused(CONSUL)),
        row("kind", "", Refused(CONSUL)),
    ])
};

static SCALING: Table = Table {
    wire: Some(shapes::SCALING),
    read_only: &["ID", "Namespace", "Target", "Type", "CreateIndex", "ModifyIndex"],
    ..plain(&[
        row("min", "min", Whole).absent(NullOnly),
        row("max", "max", Whole).absent(NullOnly),
        row("enabled", "enabled", Bool).absent(usually(true)),
        row("policy", "policy", Free),
    ])
};

static DEVICE: Table = labelled(
    "name",
    &[
        row("count", "count", Whole).absent(Number(1)),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
    ],
);

static RESOURCES: Table = plain(&[
    row("cpu", "cpu", Whole).named("CPU"),
    row("cores", "cores", Whole),
    row("memory", "memoryMB", Whole).absent(Number(300)),
    row("memory_max", "memoryMaxMB", Whole),
    row("secrets", "secretsMB", Whole).absent(Null),
    row("device", "devices", Blocks(&DEVICE)),
    row("numa", "numa", Block(&plain(&[row("affinity", "affinity", Text).absent(or("none"))])))
        .named("NUMA")
        .absent(Null),
    row("network", "", Refused("ports belong to the group; move the block `network` there")).named("Networks"),
    row("iops", "", Refused("there is no such resource; remove it")).named("IOPS"),
    row("disk", "", Refused("disk belongs to the group; write `ephemeral_disk { size = … }` there")).named("DiskMB"),
]);

static TEMPLATE: Table = plain(&[
    row("data", "embeddedTmpl", Text),
    row("source", "sourcePath", Text),
    row("destination", "destPath", Text),
    row("change_mode", "changeMode", Text).absent(or("restart")),
    row("change_signal", "changeSignal", Text),
    row(
        "change_script",
        "changeScript",
        Block(&plain(&[
            row("command", "command", Text),
            row("args", "args", Texts),
            row("timeout", "timeout", Duration).absent(Number(5 * SECOND)),
            row("fail_on_error", "failOnError", Bool),
            row("run_on_first_render", "runOnFirstRender", Bool),
        ])),
    )
    .absent(Null),
    row("splay", "splay", Duration).absent(Number(5 * SECOND)),
    row("perms", "perms", Text).absent(or("0644")),
    row("uid", "uid", Whole).absent(NullOnly),
    row("gid", "gid", Whole).absent(NullOnly),
    row("env", "envvars", Bool),
    row("once", "once", Bool),
    row("error_on_missing_key", "errMissingKey", Bool),
    row("rolling", "rolling", Bool),
    row(
        "wait",
        "wait",
        Block(&plain(&[row("min", "min", Duration).absent(NullOnly), row("max", "max", Duration).absent(NullOnly)])),
    )
    .absent(NullOnly),
    row("left_delimiter", "leftDelimiter", Text).named("LeftDelim").absent(or("{{")),
    row("right_delimiter", "rightDelimiter", Text).named("RightDelim").absent(or("}}")),
    row("vault_grace", "", Refused(VAULT)),
]);

static ARTIFACT: Table = plain(&[
    row("source", "getterSource", Text),
    row("destination", "relativeDest", Text).absent(or("local/")),
    row("mode", "getterMode", Text).absent(or("any")),
    row("options", "getterOptions", TextMap),
    row("headers", "getterHeaders", TextMap),
    row("chown", "chown", Bool),
    row("insecure", "", Refused("certificates are always checked; serve the file with one that is trusted"))
        .named("GetterInsecure"),
]);

static IDENTITY: Table = adjusted(
    &[
        row("name", "name", Text),
        row("aud", "aud", Texts).named("Audience"),
        row("env", "env", Bool),
        row("file", "file", Bool),
        row("filepath", "filepath", Text),
        row("change_mode", "changeMode", Text).absent(or("noop")),
        row("change_signal", "changeSignal", Text),
        row("ttl", "ttl", Duration).named("TTL"),
        row("extra_claims", "extraClaims", TextMap).absent(Omitted),
        row("kubernetes", "kubernetes", Block(&plain(&[row("service_account", "serviceAccount", Text)])))
            .absent(Omitted),
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
        row("kill_timeout", "killTimeout", Duration).absent(Number(5 * SECOND)),
        row("kill_signal", "killSignal", Text),
        row("shutdown_delay", "shutdownDelay", Duration),
        row("meta", "meta", TextMap),
        row(
            "lifecycle",
            "lifecycle",
            Block(&plain(&[row("hook", "hook", Text), row("sidecar", "sidecar", Bool).absent(usually(false))])),
        )
        .absent(Null),
        row("resources", "resources", Block(&RESOURCES)),
        row(
            "logs",
            "logs",
            Block(&adjusted(
                &[
                    row("max_files", "maxFiles", Whole).absent(Number(10)),
                    row("max_file_size", "maxFileSizeMB", Whole).absent(Number(10)),
                    row("disabled", "disabled", Bool),
                    row("enabled", "", Other),
                ],
                sugar::logs,
            )),
        )
        .named("LogConfig"),
        row(
            "volume_mount",
            "volumeMounts",
            Blocks(&plain(&[
                row("volume", "volume", Text),
                row("destination", "destination", Text),
                row("read_only", "readOnly", Bool),
                row("propagation_mode", "propagationMode", Text).absent(or("private")),
                row("selinux_label", "selinuxLabel", Text).named("SELinuxLabel"),
            ])),
        ),
        row("template", "templates", Blocks(&TEMPLATE)),
        row("artifact", "artifacts", Blocks(&ARTIFACT)),
        row("service", "services", Blocks(&SERVICE)),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
        row("restart", "restart", Block(&RESTART)).named("RestartPolicy").absent(NullOnly),
        row("dispatch_payload", "dispatchPayload", Block(&plain(&[row("file", "file", Text)]))).absent(Null),
        row(
            "csi_plugin",
            "csiPlugin",
            Block(&plain(&[
                row("id", "id", Text).named("ID"),
                row("type", "type", Text),
                row("mount_dir", "mountDir", Text),
                row("stage_publish_base_dir", "stagePublishBaseDir", Text),
                row("health_timeout", "healthTimeout", Duration).absent(NumberOrZero(30 * SECOND)),
            ])),
        )
        .named("CSIPluginConfig")
        .absent(Null),
        row("identity", "identities", Blocks(&IDENTITY)),
        row(
            "action",
            "actions",
            Blocks(&labelled("name", &[row("command", "command", Text), row("args", "args", Texts)])),
        ),
        row("image_pull_secrets", "imagePullSecrets", Texts).absent(Omitted),
        row("vault", "", Refused(VAULT)),
        row("consul", "", Refused(CONSUL)),
        row(
            "secret",
            "secrets",
            Blocks(&labelled("name", &[row("provider", "provider", Text), row("path", "path", Text)])),
        ),
        row("kind", "", Refused(CONNECT)),
        row("scaling", "", Refused("tasks are not scaled; write `scaling` into the group")).named("ScalingPolicies"),
        row("schedule", "", Refused("use a periodic job")),
    ],
    adjust: Some(template_objects::list),
    restore: None,
    wire: Some(shapes::TASK),
    read_only: &[],
};

static GROUP: Table = Table {
    label: Some("name"),
    rows: &[
        row("count", "count", Whole).absent(NullOnly),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
        row("spread", "spreads", Blocks(&SPREAD)),
        row("update", "update", Block(&UPDATE)).absent(NullOnly),
        row("migrate", "migrate", Block(&MIGRATE)).absent(NullOnly),
        row("reschedule", "reschedule", Block(&RESCHEDULE)).named("ReschedulePolicy").absent(NullOnly),
        row("restart", "restart", Block(&RESTART)).named("RestartPolicy").absent(NullOnly),
        row("disconnect", "disconnect", Block(&DISCONNECT)).absent(NullOnly),
        row("max_client_disconnect", "maxClientDisconnect", Duration).absent(Null),
        row("stop_after_client_disconnect", "stopAfterClientDisconnect", Duration).absent(Null),
        row("prevent_reschedule_on_lost", "preventRescheduleOnLost", Bool).absent(usually(false)),
        row(
            "ephemeral_disk",
            "ephemeralDisk",
            Block(&plain(&[
                row("size", "sizeMB", Whole).absent(Number(300)),
                row("sticky", "sticky", Bool),
                row("migrate", "migrate", Bool),
            ])),
        ),
        row("network", "networks", Blocks(&NETWORK)),
        row("service", "services", Blocks(&SERVICE)),
        row("volume", "volumes", Blocks(&VOLUME)),
        row("scaling", "scaling", Block(&SCALING)).absent(NullOnly),
        row("shutdown_delay", "shutdownDelay", Duration).absent(Null),
        row("max_run_duration", "maxRunDuration", Duration).absent(Null),
        row("meta", "meta", TextMap),
        row("task", "tasks", Blocks(&TASK)),
        row("vault", "", Refused(VAULT)),
        row("consul", "", Refused(CONSUL)),
    ],
    adjust: None,
    restore: None,
    wire: Some(shapes::GROUP),
    read_only: &[],
};

pub(super) static JOB: Table = Table {
    label: Some("id"),
    rows: &[
        row("name", "name", Text),
        row("type", "type", Text),
        row("priority", "priority", Whole).absent(Number(50)),
        row("region", "region", Text).absent(or("global")),
        row("namespace", "namespace", Text),
        row("datacenters", "datacenters", Texts),
        row("node_pool", "nodePool", Text).absent(or("default")),
        row("all_at_once", "allAtOnce", Bool),
        row("meta", "meta", TextMap),
        row("constraint", "constraints", Blocks(&CONSTRAINT)),
        row("affinity", "affinities", Blocks(&AFFINITY)),
        row("spread", "spreads", Blocks(&SPREAD)),
        row("update", "update", Block(&UPDATE)).absent(NullOnly),
        row(
            "periodic",
            "periodic",
            Block(&Table {
                adjust: Some(sugar::periodic),
                restore: Some(sugar::restore_periodic),
                wire: Some(shapes::PERIODIC),
                ..plain(&[
                    row("cron", "", Other).named("Spec"),
                    row("crons", "crons", Texts).named("Specs"),
                    row("time_zone", "timeZone", Text).absent(or("UTC")),
                    row("prohibit_overlap", "prohibitOverlap", Bool),
                    row("enabled", "enabled", Bool).absent(usually(true)),
                ])
            }),
        )
        .absent(NullOnly),
        row(
            "parameterized",
            "parameterized",
            Block(&plain(&[
                row("payload", "payload", Text).absent(or("optional")),
                row("meta_required", "metaRequired", Texts),
                row("meta_optional", "metaOptional", Texts),
            ])),
        )
        .named("ParameterizedJob")
        .absent(NullOnly),
        row(
            "multiregion",
            "multiregion",
            Block(&plain(&[
                row(
                    "strategy",
                    "strategy",
                    Block(&plain(&[row("max_parallel", "maxParallel", Whole), row("on_failure", "onFailure", Text)])),
                )
                .absent(Null),
                row(
                    "region",
                    "regions",
                    Blocks(&labelled(
                        "name",
                        &[
                            row("count", "count", Whole).absent(NullOnly),
                            row("datacenters", "datacenters", Texts),
                            row("node_pool", "nodePool", Text),
                            row("meta", "meta", TextMap),
                        ],
                    )),
                ),
            ])),
        )
        .absent(Null),
        row("group", "groups", Blocks(&GROUP)).named("TaskGroups"),
        row("task", sugar::TASKS, Blocks(&TASK)),
        row("migrate", sugar::MIGRATE, Block(&MIGRATE)).named("Migrate").absent(Omitted),
        row("reschedule", sugar::RESCHEDULE, Block(&RESCHEDULE)).named("Reschedule").absent(Omitted),
        row("(stop)", "stop", Bool),
        row(
            "(dispatched)",
            "",
            Refused("it is one dispatch of a parameterized job; carry its parent over, and dispatch that"),
        )
        .named("Dispatched"),
        row("vault", "", Refused(VAULT)),
        row("consul", "", Refused(CONSUL)),
        row("vault_token", "", Refused(VAULT)),
        row("consul_token", "", Refused(CONSUL)),
        row("ui", "", Refused("drover shows no links of a job; put them into `meta`")).named("UI"),
    ],
    adjust: Some(sugar::job),
    restore: None,
    wire: Some(shapes::JOB),
    read_only: &[
        "CreateIndex",
        "DispatchIdempotencyToken",
        "JobModifyIndex",
        "ModifyIndex",
        "NomadTokenID",
        "ParentID",
        "Payload",
        "Stable",
        "Status",
        "StatusDescription",
        "SubmitTime",
        "Version",
        "VersionTag",
    ],
};

pub(super) static VOLUME_FILE: Table = Table {
    label: None,
    rows: &[
        row("id", "id", Text).named("ID"),
        row("name", "name", Text),
        row("namespace", "namespace", Text),
        row("type", "type", Text),
        row("plugin_id", "pluginID", Text),
        row("external_id", "externalID", Text),
        row("capacity_min", "", Other).named("RequestedCapacityMin"),
        row("capacity_max", "", Other).named("RequestedCapacityMax"),
        row(
            "capability",
            "capabilities",
            Blocks(&plain(&[row("access_mode", "accessMode", Text), row("attachment_mode", "attachmentMode", Text)])),
        )
        .named("RequestedCapabilities"),
        row("mount_options", "mountOptions", Block(&MOUNT_OPTIONS)),
        row("secrets", "secrets", TextMap),
        row("parameters", "parameters", TextMap),
        row("context", "context", TextMap),
        row(
            "topology_request",
            "topologyRequest",
            Block(&plain(&[
                row("required", "required", Other).named("Required"),
                row("preferred", "preferred", Other).named("Preferred"),
            ])),
        )
        .named("RequestedTopologies"),
        row("clone_id", "cloneID", Text),
        row("snapshot_id", "snapshotID", Text),
        row("access_mode", "", Refused("write a block `capability`")),
        row("attachment_mode", "", Refused("write a block `capability`")),
    ],
    adjust: Some(sugar::volume),
    restore: None,
    wire: None,
    read_only: &[
        "AccessMode",
        "Allocations",
        "AttachmentMode",
        "Capacity",
        "ControllerRequired",
        "ControllersExpected",
        "ControllersHealthy",
        "CreateIndex",
        "CreateTime",
        "ModifyIndex",
        "ModifyTime",
        "NodesExpected",
        "NodesHealthy",
        "Provider",
        "ProviderVersion",
        "ReadAllocs",
        "ResourceExhausted",
        "Schedulable",
        "Topologies",
        "WriteAllocs",
    ],
};
