//! Which Secrets and `ConfigMaps` the templates of a task name, so that the task lists them: a job file of Nomad names
//! them in the template alone.

use std::collections::BTreeSet;

use drover_api::value_object::ValueKind;
use drover_core::task::template_objects::{NamedObject, named_in};
use serde_json::{Map, Value as Json, json};

use super::report::Report;
use crate::document::Block;

/// Adds what templates name to `secrets`, unless it is there.
pub(super) fn list(fields: &mut Map<String, Json>, _: &Block, _: &mut Report<'_>) {
    let templates = fields.get("templates").and_then(Json::as_array).into_iter().flatten();
    // A template that is no template is reported where it is read.
    let templates = templates.filter_map(|template| serde_json::from_value(template.clone()).ok());
    let objects: Vec<NamedObject> = templates.flat_map(|template| named_in(&template)).collect();
    let mut listed: Vec<Json> = fields.get("secrets").and_then(Json::as_array).cloned().unwrap_or_default();
    let object = |entry: &Json| {
        let path = entry["path"].as_str().unwrap_or_default();
        (entry["provider"] == "configmap", path.replace('/', "."))
    };
    let mut known: BTreeSet<(bool, String)> = listed.iter().map(object).collect();
    let mut names: BTreeSet<String> =
        listed.iter().filter_map(|entry| entry["name"].as_str()).map(str::to_owned).collect();
    for NamedObject { object: found, path } in objects {
        let mut entry = match found.kind {
            ValueKind::ConfigMap => json!({ "provider": "configmap", "path": found.name }),
            _ => json!({ "provider": "nomad", "path": path }),
        };
        if !known.insert(object(&entry)) {
            continue;
        }
        let base: String = found.name.chars().map(|char| if fits(char) { char } else { '-' }).collect();
        let free = (1..).map(|n| if n == 1 { base.clone() } else { format!("{base}-{n}") });
        let Some(name) = free.into_iter().find(|name| !names.contains(name)) else { continue };
        names.insert(name.clone());
        entry["name"] = name.into();
        listed.push(entry);
    }
    if !listed.is_empty() {
        fields.insert("secrets".to_owned(), listed.into());
    }
}

/// What a secret's name in a task may hold.
fn fits(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}

#[cfg(test)]
mod tests {
    use crate::{Inputs, manifests};

    #[test]
    fn what_templates_name_is_listed_once_and_beside_what_is() {
        let text = r#"
job "web" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "x" }
      secret "db" {
        provider = "kubernetes"
        path     = "db-creds"
      }
      template {
        destination = "local/a"
        left_delimiter = "[["
        right_delimiter = "]]"
        data = <<EOH
[[ with nomadVar "nomad/jobs/web" ]][[ .password ]][[ end ]]
[[ with secret "db-creds" ]][[ .Data.k ]][[ end ]][[ key "app/x/mode" ]][[ ls "app/x" ]]
[[ keyOrDefault "app.x/other" "none" ]][[ key (print "no" "name") ]]
EOH
      }
      template {
        destination = "local/b"
        data = "{{ if nomadVarExists `nomad/jobs/web` }}{{ range tree \"db-creds\" }}{{ end }}{{ end }}"
      }
    }
  }
}
"#;
        let found = manifests("web.nomad.hcl", text, &Inputs::default()).unwrap_or_else(|faults| panic!("{faults:#?}"));
        let task = &found[0]["spec"]["groups"][0]["tasks"][0];
        assert_eq!(task["templates"][0]["leftDelimiter"], "[[");
        let secrets = task["secrets"].as_array().expect("a list");
        let shown: Vec<String> = secrets
            .iter()
            .map(|it| [&it["name"], &it["provider"], &it["path"]].map(|it| it.as_str().unwrap_or_default()).join(" "))
            .collect();
        let expected = [
            "db kubernetes db-creds",
            "nomad-jobs-web nomad nomad/jobs/web",
            "app-x configmap app.x",
            "db-creds configmap db-creds",
        ];
        assert_eq!(shown, expected);
    }
}
