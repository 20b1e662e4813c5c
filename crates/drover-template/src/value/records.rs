//! The structs of consul-template that templates look into, with the names and the order of their fields.

use super::types::{GoType, INT, NamedType, RecordType, TEXT_MAP, TEXT_SLICE, UINT64};

const TEXT: GoType = GoType::Text;

/// Tags of a service.
pub(crate) const SERVICE_TAGS: GoType =
    GoType::Named(&NamedType { name: "dependency.ServiceTags", underlying: TEXT_SLICE });
/// A time as nanoseconds.
pub(crate) const NANO_TIME: GoType =
    GoType::Named(&NamedType { name: "dependency.nanoTime", underlying: super::types::INT64 });

/// A key and its value.
pub(crate) static KEY_PAIR: RecordType = RecordType {
    name: "dependency.KeyPair",
    fields: &[
        ("Path", TEXT),
        ("Key", TEXT),
        ("Value", TEXT),
        ("CreateIndex", UINT64),
        ("ModifyIndex", UINT64),
        ("LockIndex", UINT64),
        ("Flags", UINT64),
        ("Session", TEXT),
    ],
};

/// `*dependency.KeyPair`.
pub(crate) const POINTER_TO_PAIR: GoType = GoType::Pointer(&GoType::Record(&KEY_PAIR));
/// What `ls` and `tree` give.
pub(crate) const POINTERS_TO_PAIRS: GoType = GoType::Slice(&POINTER_TO_PAIR);
/// What `byKey` makes of it.
pub(crate) const PAIRS_BY_KEY: GoType = GoType::Map(&GoType::Text, &POINTER_TO_PAIR);

/// What `secret` gives.
pub(crate) static SECRET: RecordType = RecordType {
    name: "dependency.Secret",
    fields: &[
        ("RequestID", TEXT),
        ("LeaseID", TEXT),
        ("LeaseDuration", INT),
        ("Renewable", GoType::Bool),
        ("Data", super::types::ANY_MAP),
        ("Warnings", TEXT_SLICE),
        ("Auth", GoType::Pointer(&GoType::Record(&SECRET_AUTH))),
        ("WrapInfo", GoType::Pointer(&GoType::Record(&SECRET_WRAP))),
    ],
};

static SECRET_AUTH: RecordType = RecordType { name: "dependency.SecretAuth", fields: &[("ClientToken", TEXT)] };
static SECRET_WRAP: RecordType = RecordType { name: "dependency.SecretWrapInfo", fields: &[("Token", TEXT)] };

/// What `nomadService` gives.
pub(crate) static NOMAD_SERVICE: RecordType = RecordType {
    name: "dependency.NomadService",
    fields: &[
        ("ID", TEXT),
        ("Name", TEXT),
        ("Node", TEXT),
        ("Address", TEXT),
        ("Port", INT),
        ("Datacenter", TEXT),
        ("Tags", SERVICE_TAGS),
        ("JobID", TEXT),
        ("AllocID", TEXT),
    ],
};

/// What `nomadServices` gives.
pub(crate) static NOMAD_SNIPPET: RecordType =
    RecordType { name: "dependency.NomadServicesSnippet", fields: &[("Name", TEXT), ("Tags", SERVICE_TAGS)] };

/// What `services` gives.
pub(crate) static CATALOG_SNIPPET: RecordType =
    RecordType { name: "dependency.CatalogSnippet", fields: &[("Name", TEXT), ("Tags", SERVICE_TAGS)] };

/// What `service` gives. Of the fields that only Consul knows, those with maps and numbers of its own are left out.
pub(crate) static HEALTH_SERVICE: RecordType = RecordType {
    name: "dependency.HealthService",
    fields: &[
        ("Node", TEXT),
        ("NodeID", TEXT),
        ("NodeAddress", TEXT),
        ("NodeTaggedAddresses", TEXT_MAP),
        ("NodeMeta", TEXT_MAP),
        ("ServiceMeta", TEXT_MAP),
        ("Address", TEXT),
        ("ID", TEXT),
        ("Name", TEXT),
        ("Tags", SERVICE_TAGS),
        ("Status", TEXT),
        ("Port", INT),
    ],
};

/// One item of a variable.
pub(crate) static VARIABLE_ITEM: RecordType =
    RecordType { name: "dependency.NomadVarItem", fields: &[("Key", TEXT), ("Value", TEXT)] };

/// All items of a variable.
pub(crate) const VARIABLE_ITEMS: GoType = GoType::Named(&NamedType {
    name: "dependency.NomadVarItems",
    underlying: GoType::Map(&GoType::Text, &GoType::Record(&VARIABLE_ITEM)),
});

/// A variable.
pub(crate) static VARIABLE: RecordType = RecordType {
    name: "dependency.NomadVariable",
    fields: &[
        ("Namespace", TEXT),
        ("Path", TEXT),
        ("CreateIndex", UINT64),
        ("ModifyIndex", UINT64),
        ("CreateTime", NANO_TIME),
        ("ModifyTime", NANO_TIME),
        ("Items", VARIABLE_ITEMS),
    ],
};

/// A variable without its items.
pub(crate) static VARIABLE_META: RecordType = RecordType {
    name: "dependency.NomadVarMeta",
    fields: &[
        ("Namespace", TEXT),
        ("Path", TEXT),
        ("CreateIndex", UINT64),
        ("ModifyIndex", UINT64),
        ("CreateTime", NANO_TIME),
        ("ModifyTime", NANO_TIME),
    ],
};

/// A key and a value of a variable.
pub(crate) static TUPLE: RecordType =
    RecordType { name: "struct { K string; V string }", fields: &[("K", TEXT), ("V", TEXT)] };
