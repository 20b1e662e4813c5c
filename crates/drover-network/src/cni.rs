//! CNI networks of a node: its configuration lists, run with the protocol of the Container Network Interface 1.0
//! (<https://www.cni.dev/docs/spec/>): each plugin is a program that gets its configuration on standard input and
//! answers with JSON.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::attachment::PortMapping;
use crate::namespaces::Namespaces;
use crate::network_error::NetworkError;
use crate::plugin::{Verb, run};
use crate::port_table::PROTOCOLS;

/// The device that plugins make.
const INSIDE: &str = "eth0";
/// The longest name: a node lists it as a mode.
const MAX_NAME: usize = 120;
/// The largest configuration file.
const MAX_BYTES: u64 = 1024 * 1024;

/// Where CNI networks come from.
#[derive(Clone, Debug)]
pub struct CniDirs {
    /// The folder of network configurations.
    pub config: PathBuf,
    /// The folder of plugins.
    pub bin: PathBuf,
    /// The folder of the namespaces.
    pub namespaces: PathBuf,
}

/// The CNI networks that a node's configuration has, by name.
#[derive(Clone, Debug, Default)]
pub struct CniNetworks(BTreeMap<String, Map<String, Value>>);

impl CniNetworks {
    /// Reads the files of the folder in the order of their names, and what is wrong with which.
    pub fn read(dirs: &CniDirs) -> (Self, Vec<String>) {
        let (mut found, mut problems) = (Self::default(), Vec::new());
        let mut paths: Vec<PathBuf> = match fs::read_dir(&dirs.config) {
            Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
            Err(error) => return (found, vec![format!("{}: {error}", dirs.config.display())]),
        };
        paths.sort();
        for path in paths {
            let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
            if !matches!(extension, "conflist" | "conf" | "json") {
                continue;
            }
            match read_list(&path).and_then(|list| checked(list, &dirs.bin)) {
                // As in other runtimes, the first file of a name counts.
                Ok((name, list)) => drop(found.0.entry(name).or_insert(list)),
                Err(reason) => problems.push(format!("{}: {reason}", path.display())),
            }
        }
        (found, problems)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What is asked of the plugins of a network.
    ///
    /// # Errors
    /// When there is no such network, or it cannot map ports and there are some.
    pub fn order(
        &self,
        name: &str,
        args: BTreeMap<String, String>,
        ports: Vec<PortMapping>,
    ) -> Result<CniOrder, NetworkError> {
        let list = self.0.get(name).ok_or_else(|| NetworkError(format!("this node has no CNI network {name}")))?;
        let order = CniOrder { list: list.clone(), args, ports, result: None };
        if !order.ports.is_empty() && !order.plugins().any(|plugin| can(plugin, "portMappings")) {
            return Err(NetworkError(format!(
                "CNI network {name} has no plugin with capability portMappings, so no port of the node leads into it: \
                 remove the ports from the group, or add plugin portmap to the network's configuration"
            )));
        }
        if let Some(word) =
            order.args.iter().flat_map(|(key, value)| [key, value]).find(|word| word.contains([';', '=']))
        {
            return Err(NetworkError(format!(
                "cni.args: {word:?} has a ; or =, which separate arguments; leave it out"
            )));
        }
        Ok(order)
    }
}

fn read_list(path: &Path) -> Result<Map<String, Value>, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_BYTES {
        return Err(format!("has {size} bytes; a configuration has at most {MAX_BYTES}"));
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let found: Map<String, Value> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if found.contains_key("plugins") {
        return Ok(found);
    }
    // A file with one plugin is a list of one.
    let of = |key: &str| found.get(key).cloned().unwrap_or(Value::Null);
    let list = json!({ "cniVersion": of("cniVersion"), "name": of("name"), "plugins": [found] });
    Ok(list.as_object().cloned().unwrap_or_default())
}

/// The list with its name, if it can be run here.
fn checked(list: Map<String, Value>, bin: &Path) -> Result<(String, Map<String, Value>), String> {
    let text = |of: &Map<String, Value>, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text(&list, "name");
    if name.is_empty() {
        return Err("name is missing: give the network one".to_owned());
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.len() > MAX_NAME || !name.bytes().all(is_plain) {
        return Err(format!("{name:?} is no name of a network: take letters, digits, _, . and -, at most {MAX_NAME}"));
    }
    let plugins = list.get("plugins").and_then(Value::as_array).cloned().unwrap_or_default();
    if plugins.is_empty() {
        return Err(format!("network {name} has no plugins"));
    }
    for plugin in &plugins {
        let kind = plugin.as_object().map(|plugin| text(plugin, "type")).unwrap_or_default();
        if kind.is_empty() || kind.contains('/') {
            return Err(format!("network {name}: {kind:?} is no type of a plugin"));
        }
        if !bin.join(&kind).is_file() {
            return Err(format!("network {name}: plugin {kind} is not in {}: put it there", bin.display()));
        }
    }
    Ok((name, list))
}

/// A network that plugins make and take back. Kept by the caller from before the first plugin runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CniOrder {
    /// The network's configuration list as it was then: the same plugins take it back.
    list: Map<String, Value>,
    args: BTreeMap<String, String>,
    ports: Vec<PortMapping>,
    /// What the last plugin answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

/// A network that plugins have made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniResult {
    /// The file by which its namespace is entered.
    pub namespace: PathBuf,
    /// The device within it.
    pub interface: String,
    /// Its first address.
    pub address: Option<IpAddr>,
    /// Name servers, search domains and options.
    pub dns: [Vec<String>; 3],
}

impl CniOrder {
    fn plugins(&self) -> impl DoubleEndedIterator<Item = &Map<String, Value>> {
        self.list.get("plugins").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
    }

    /// Makes the network, unless an earlier life has made it. What that left half made is taken back first.
    ///
    /// # Errors
    /// What a plugin refused. What was made stays, for [`CniOrder::delete`].
    pub fn add(mut self, dirs: &CniDirs, id: &str) -> Result<(Self, CniResult), NetworkError> {
        let namespaces = Namespaces::new(dirs.namespaces.clone());
        let is_new = namespaces.make(id)?;
        match (is_new, &self.result) {
            (false, Some(result)) => {
                let made = read_result(namespaces.path(id), result);
                return Ok((self, made));
            }
            (true, None) => {}
            (true, Some(_)) | (false, None) => {
                if let Err(error) = self.delete(dirs, id) {
                    tracing::debug!(network = id, error = %error, "an earlier network is not taken back");
                }
                self.result = None;
                namespaces.make(id)?;
            }
        }
        let mut result = None;
        for plugin in self.plugins() {
            let answer = self.run(Verb::Add, dirs, id, (plugin, result.as_ref()))?;
            result = Some(answer);
        }
        let made = read_result(namespaces.path(id), result.as_ref().unwrap_or(&Value::Null));
        self.result = result;
        Ok((self, made))
    }

    /// The node's ports that lead to it, and the address that its plugins gave it; none: they gave none of IPv4.
    pub fn mapped(&self) -> Option<(Ipv4Addr, &[PortMapping])> {
        match read_result(PathBuf::new(), self.result.as_ref()?).address? {
            IpAddr::V4(address) => Some((address, &self.ports)),
            IpAddr::V6(_) => None,
        }
    }

    /// Takes the network back: each plugin is asked, the last one first, whatever the others answer.
    ///
    /// # Errors
    /// What the first plugin answered that could not.
    pub fn delete(&self, dirs: &CniDirs, id: &str) -> Result<(), NetworkError> {
        let mut deleted = Ok(());
        for plugin in self.plugins().rev() {
            let answer = self.run(Verb::Del, dirs, id, (plugin, self.result.as_ref())).map(drop);
            deleted = deleted.and(answer);
        }
        deleted.and(Namespaces::new(dirs.namespaces.clone()).remove(id))
    }

    fn run(
        &self,
        verb: Verb,
        dirs: &CniDirs,
        id: &str,
        (plugin, previous): (&Map<String, Value>, Option<&Value>),
    ) -> Result<Value, NetworkError> {
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let mut config = plugin.clone();
        for key in ["name", "cniVersion"] {
            config.insert(key.to_owned(), self.list.get(key).cloned().unwrap_or(Value::Null));
        }
        if can(plugin, "portMappings") {
            config.insert("runtimeConfig".to_owned(), json!({ "portMappings": self.port_mappings() }));
        }
        config.remove("capabilities");
        if let Some(previous) = previous {
            config.insert("prevResult".to_owned(), previous.clone());
        }
        let path = Namespaces::new(dirs.namespaces.clone()).path(id);
        let namespace = if path.exists() { path.to_string_lossy().into_owned() } else { String::new() };
        let args = self.args.iter().map(|(key, value)| format!(";{key}={value}"));
        let env = [
            ("CNI_COMMAND", verb.word().to_owned()),
            ("CNI_CONTAINERID", id.to_owned()),
            ("CNI_NETNS", namespace),
            ("CNI_IFNAME", INSIDE.to_owned()),
            ("CNI_PATH", dirs.bin.to_string_lossy().into_owned()),
            ("CNI_ARGS", ["IgnoreUnknown=1".to_owned()].into_iter().chain(args).collect()),
        ];
        let answer = run(&dirs.bin.join(kind), &env, &Value::Object(config));
        answer.map_err(NetworkError::because(format_args!("CNI plugin {kind}, {}", verb.word())))
    }

    fn port_mappings(&self) -> Vec<Value> {
        let of = |port: &PortMapping| {
            let (host_ip, host, inside) = (port.host_ip, port.host_port, port.port);
            PROTOCOLS.map(|protocol| {
                let protocol = if protocol == 6 { "tcp" } else { "udp" };
                json!({ "hostPort": host, "containerPort": inside, "protocol": protocol, "hostIP": host_ip })
            })
        };
        self.ports.iter().flat_map(of).collect()
    }
}

fn can(plugin: &Map<String, Value>, capability: &str) -> bool {
    plugin.get("capabilities").and_then(|all| all.get(capability)) == Some(&Value::Bool(true))
}

fn read_result(namespace: PathBuf, result: &Value) -> CniResult {
    let mut ips = result.get("ips").and_then(Value::as_array).into_iter().flatten();
    let address = |ip: &Value| ip.get("address")?.as_str()?.split('/').next()?.parse().ok();
    let words = |key: &str| -> Vec<String> {
        let list = result.get("dns").and_then(|dns| dns.get(key)).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    CniResult {
        namespace,
        interface: INSIDE.to_owned(),
        address: ips.find_map(address),
        dns: ["nameservers", "search", "options"].map(words),
    }
}
