//! Volumes in Nomad's JSON: they become what the same volume file becomes, and what is wrong is named.

use expect_test::expect;
use serde_json::{Value, json};

use crate::{Inputs, manifests, wire_volume_manifests};

/// The request by which a client registers `testdata/data.volume.hcl`, with all that its library writes.
fn request() -> Value {
    let volume = json!({
        "ID": "data[0]", "Name": "data", "ExternalID": "", "Namespace": "", "Topologies": null, "AccessMode": "",
        "AttachmentMode": "", "MountOptions": { "FSType": "ext4", "MountFlags": ["noatime"] },
        "Secrets": { "key": "swordfish" }, "Parameters": { "type": "gp3" }, "Context": null, "Capacity": 0,
        "RequestedCapacityMin": 10_737_418_240_u64, "RequestedCapacityMax": 20_000_000_000_u64,
        "RequestedCapabilities": [{ "AccessMode": "single-node-writer", "AttachmentMode": "file-system" }],
        "CloneID": "", "SnapshotID": "", "ReadAllocs": null, "WriteAllocs": null, "Allocations": null,
        "RequestedTopologies": {
            "Required": [{ "Segments": { "zone": "a" } }, { "Segments": { "zone": "b" } }], "Preferred": null,
        },
        "Schedulable": false, "PluginID": "ebs", "Provider": "", "ProviderVersion": "", "ControllerRequired": false,
        "ControllersHealthy": 0, "ControllersExpected": 0, "NodesHealthy": 0, "NodesExpected": 0,
        "ResourceExhausted": "0001-01-01T00:00:00Z", "CreateIndex": 0, "ModifyIndex": 0, "CreateTime": 0,
        "ModifyTime": 0,
    });
    json!({ "Volumes": [volume], "Region": "global", "Namespace": "", "SecretID": "" })
}

fn faults(change: impl Fn(&mut Value)) -> String {
    let mut request = request();
    change(&mut request);
    let result = wire_volume_manifests("request", &request.to_string());
    let faults = result.map(|found| panic!("{found:?}")).unwrap_err();
    // Where a line begins says nothing of one that a program has written.
    let messages = faults.iter().map(|fault| fault.message.as_str());
    messages.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_request_becomes_what_the_volume_file_becomes() {
    let text = include_str!("../../testdata/data.volume.hcl");
    let mut expected = manifests("data.volume.hcl", text, &Inputs::default()).unwrap();
    expected[1]["spec"]["capacity"] = json!({ "min": "10737418240", "max": "20000000000" });
    assert_eq!(wire_volume_manifests("request", &request().to_string()).unwrap(), expected);
}

#[test]
fn what_is_shown_of_a_volume_is_taken_again_and_what_became_of_it_is_no_part_of_it() {
    let mut shown = request();
    let volume = &mut shown["Volumes"][0];
    for (field, value) in [
        ("AccessMode", json!("single-node-writer")),
        ("AttachmentMode", json!("file-system")),
        ("Capacity", json!(7)),
        ("Topologies", json!([{ "Segments": { "zone": "a" } }])),
        ("Allocations", json!([{ "ID": "a" }])),
        ("WriteAllocs", json!({ "a": null })),
        ("Schedulable", json!(true)),
        ("NodesHealthy", json!(1)),
        ("ModifyIndex", json!(7)),
    ] {
        volume[field] = value;
    }
    let found = |of: &Value| wire_volume_manifests("request", &of.to_string()).unwrap();
    assert_eq!(found(&shown), found(&request()));
}

#[test]
fn what_is_wrong_with_a_request_is_named_with_its_path_and_what_to_do() {
    let told = [
        faults(|request| request["Volumes"] = Value::Null),
        faults(|request| request["Volumes"] = json!([])),
        faults(|request| request["Volumes"] = json!([{ "ID": "a" }, { "ID": "b" }])),
        faults(|request| request["Volumes"] = json!({ "ID": "a" })),
        faults(|request| *request = json!([1])),
        faults(|request| request["Volumes"] = json!(["a"])),
        faults(|request| request["Volumes"][0]["ID"] = json!("")),
        faults(|request| request["Volume"] = json!({ "ID": "a" })),
        faults(|request| {
            let volume = &mut request["Volumes"][0];
            volume["pluginID"] = json!("ebs");
            volume["Kind"] = json!("ssd");
            volume["Type"] = json!("host");
            volume["Parameters"] = json!({ "iops": 7 });
            volume["RequestedCapacityMin"] = json!(-1);
            volume["RequestedCapabilities"] = json!({ "AccessMode": "single-node-writer" });
            volume["RequestedTopologies"] = json!({ "Required": [{ "zone": "a" }], "Preferred": "b" });
        }),
    ];
    expect![[r#"
        Volumes holds no volume; give one, as {"Volumes": [{"ID": …}]}
        Volumes holds no volume; give one, as {"Volumes": [{"ID": …}]}
        Volumes: holds 2 volumes; give one, and the others in requests of their own
        Volumes holds no volume; give one, as {"Volumes": [{"ID": …}]}
        Volumes holds no volume; give one, as {"Volumes": [{"ID": …}]}
        Volumes[0]: a volume needs an `ID`
        Volumes[0]: must be an object, and is a string
        Volumes[0]: a volume needs an `ID`
        Volume: stands beside `Volumes`; move it into the volume, or remove it
        Volumes[0]: `Type` must be "csi"; leave it out
        Volumes[0].Parameters.iops: must be a string, and is 7
        Volumes[0].RequestedCapacityMin: `capacity_min` must be a size, as "10GiB"
        Volumes[0].RequestedCapabilities: must be a list of objects, and is an object
        Volumes[0].RequestedTopologies.Required: must be a list of places, each as {"Segments": {"zone": "a"}}
        Volumes[0].RequestedTopologies.Preferred: must be a list of places, each as {"Segments": {"zone": "a"}}
        Volumes[0].pluginID: is written `PluginID`; correct the name
        Volumes[0].Kind: is nothing that drover has here: remove it, or take one of ID, Name, Namespace, Type, PluginID, ExternalID, RequestedCapacityMin, RequestedCapacityMax, RequestedCapabilities, MountOptions, Secrets, Parameters, Context, RequestedTopologies, CloneID, SnapshotID"#]].assert_eq(&told.join("\n"));
}
