//! What the API server is told of the API: constants, whatever else is the matter.

use serde_json::{Value, json};

use super::route::SUBRESOURCES;

/// The answer to a path of discovery; none: it is none.
pub(super) fn answer(path: &str) -> Option<Value> {
    let version = json!({ "groupVersion": "subresources.drover.dev/v1alpha1", "version": "v1alpha1" });
    let group = json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": "subresources.drover.dev",
        "versions": [version], "preferredVersion": version,
    });
    match path.trim_end_matches('/') {
        "/apis" => Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })),
        "/apis/subresources.drover.dev" => Some(group),
        "/apis/subresources.drover.dev/v1alpha1" => {
            let mut resources: Vec<Value> = SUBRESOURCES
                .iter()
                .map(|subresource| {
                    // Nothing of this can be listed or deleted: the end of a namespace asks for nothing here.
                    json!({
                        "name": format!("allocations/{}", subresource.name()), "singularName": "", "namespaced": true,
                        "kind": "Allocation", "verbs": ["create", "get"],
                    })
                })
                .collect();
            resources.push(json!({
                "name": "gateways/proxy", "singularName": "", "namespaced": false, "kind": "Gateway",
                "verbs": ["create", "delete", "get", "update"],
            }));
            Some(json!({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": "subresources.drover.dev/v1alpha1", "resources": resources,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_names_subresources_and_nothing_that_can_be_listed() {
        let found = answer("/apis/subresources.drover.dev/v1alpha1").expect("an answer");
        let resources = found["resources"].as_array().expect("a list");
        assert_eq!(resources.len(), SUBRESOURCES.len() + 1);
        assert!(resources.iter().all(|it| it["name"].as_str().is_some_and(|name| name.contains('/'))));
        assert_eq!(resources.iter().filter(|it| it["verbs"].to_string().contains("list")).count(), 0);
        assert_eq!(answer("/apis/subresources.drover.dev").expect("a group")["name"], "subresources.drover.dev");
        assert_eq!(answer("/apis/other"), None);
    }
}
