//! Nomad's own command line, unmodified, as people's scripts call it (`spec/gateway-calls.md`, `spec/api.md` 8), while
//! replicas of the gateway come and go; and plans, which it shows.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use drover_testkit::control_plane::User;
use drover_testkit::nomad_cli;
use drover_testkit::progress::Progress;
use http::Method;
use serde_json::{Value, json};

use crate::balancer::{Balancer, Replicas, SHUTDOWN};
use crate::gateway::{Finds, Ran, Stage};
use crate::gateway_limits::{Authority, Door, Proof, token_of};
use crate::nomad_api::{Nomad, Told};
use crate::nomad_volumes::stage_with_driver;
use crate::volumes::make_at_driver;

/// A job file of one group whose task runs a script.
fn file(id: &str, of_job: &str, of_group: &str, of_task: &str, script: &str) -> String {
    format!(
        r#"
job "{id}" {{
  {of_job}
  group "g" {{
    {of_group}
    ephemeral_disk {{ size = 110 }}
    task "t" {{
      driver = "raw_exec"
      {of_task}
      config {{
        command = "/bin/sh"
        args    = ["-c", "{script}"]
      }}
      resources {{
        cpu    = 10
        memory = 10
      }}
    }}
  }}
}}"#
    )
}

/// Healthy as soon as it runs.
const AT_ONCE: &str = "update {\n min_healthy_time = \"0s\"\n }";
/// The same, with a canary.
const CANARY: &str = "update {\n min_healthy_time = \"0s\"\n canary = 1\n }";
/// No node has it.
const NOWHERE: &str = "constraint {\n attribute = \"${attr.kernel.name}\"\n value = \"plan9\"\n }";
const QUICKLY: &str = "kill_timeout = \"2s\"";
const SLEEPS: &str = "echo hello; exec sleep 1000";

/// The command line, with what leads it to the gateway.
struct Cli<'a> {
    stage: &'a Stage,
    program: PathBuf,
    environment: Vec<(&'static str, String)>,
    /// Of these, one ends with some commands, one before others.
    replicas: Option<&'a Replicas<'a>>,
    n_run: Cell<usize>,
}

/// Commands from one to the next that begins with a replica which ends then; halfway between them one dies.
const SWAPPED_EVERY: usize = 8;

impl<'a> Cli<'a> {
    fn new(stage: &'a Stage, environment: Vec<(&'static str, String)>) -> Self {
        let program = nomad_cli::find_or_build(&Progress::silent()).expect("the program");
        Self { stage, program, environment, replicas: None, n_run: Cell::new(0) }
    }

    /// At the gateway's own port.
    async fn at_port(stage: &'a Stage, users: SocketAddr, proof: &[(&'static str, String)]) -> Self {
        // It has the authority written where the program looks for it.
        drop(Door::of(stage).await);
        let address = ("NOMAD_ADDR", format!("https://localhost:{}", users.port()));
        let authority = ("NOMAD_CACERT", stage.cluster.path("gateway-ca").display().to_string());
        Self::new(stage, [&[address, authority], proof].concat())
    }

    async fn by_token(stage: &'a Stage, users: SocketAddr) -> Self {
        Self::at_port(stage, users, &[("NOMAD_TOKEN", token_of(stage, User::Admin))]).await
    }

    fn begin(&self, args: &[&str]) -> Child {
        let mut command = Command::new(&self.program);
        command.args(args).env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("NOMAD_CLI_NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("begun")
    }

    fn try_run(&self, args: &[&str]) -> Ran {
        Ran::of(self.begin(args).wait_with_output().expect("ran"))
    }

    /// Runs a command while replicas come and go.
    fn run_amid(&self, args: &[&str]) -> Ran {
        let Some(replicas) = self.replicas else { return self.try_run(args) };
        let n = self.n_run.replace(self.n_run.get() + 1);
        let swapped = async {
            let is_over = |child: &mut Child| child.try_wait().expect("a process of ours").is_some();
            match n % SWAPPED_EVERY {
                0 => replicas.replace_one(|| self.begin(args), is_over).await,
                4 => {
                    replicas.kill_one().await;
                    self.begin(args)
                }
                _ => self.begin(args),
            }
        };
        let child = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(swapped));
        Ran::of(child.wait_with_output().expect("ran"))
    }

    /// Runs a command; it ends with this code, and says these in this order.
    fn run(&self, args: &[&str], code: i32, says: &[&str]) -> String {
        let ran = self.run_amid(args);
        let text = [String::from_utf8_lossy(&ran.out).into_owned(), ran.err].concat();
        assert_eq!(ran.code, code, "nomad {args:?}\n{text}");
        let mut rest = text.as_str();
        for word in says {
            let said = rest.split_once(word);
            rest = said.map_or_else(|| unreachable!("nomad {args:?} says no {word:?}:\n{text}"), |(_, rest)| rest);
        }
        text
    }

    /// Writes a file; its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.stage.cluster.path(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    /// The id of one of a job's allocations that run.
    fn running(&self, job: &str) -> String {
        let chosen = "{{range .}}{{if eq .ClientStatus \"running\"}}{{.ID}} {{end}}{{end}}";
        let ids = self.run(&["job", "allocs", "-t", chosen, job], 0, &[]);
        ids.split_whitespace().next().expect("one runs").to_owned()
    }

    /// Whether a job has allocations that run, and all of them are to.
    fn is_settled(&self, job: &str) -> bool {
        let wanted = "{{range .}}{{if eq .ClientStatus \"running\"}}{{.DesiredStatus}} {{end}}{{end}}";
        let all = self.run(&["job", "allocs", "-t", wanted, job], 0, &[]);
        !all.trim().is_empty() && all.split_whitespace().all(|wanted| wanted == "run")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_071_p_078_and_g_033_nomads_own_command_runs_jobs_and_says_what_it_says_of_nomads_servers() {
    let mut stage = Stage::start_with("nomad-cli", SHUTDOWN, Finds::BySlices).await;
    let own = stage.gateway.take().expect("a gateway");
    let replicas = Replicas::start(&stage, own, Balancer::start(stage.users).await).await;
    let users = replicas.at();
    let mut cli = Cli::by_token(&stage, users).await;
    cli.replicas = Some(&replicas);
    runs_jobs(&cli);
    looks_into_allocations(&cli);
    rolls_out(&stage, &cli).await;
    launches(&cli);
    looks_at_the_cluster(&cli);
    drains(&stage, &cli).await;
    by_certificate(&stage, users).await;
    by_proxy(&stage, users);
    cli.run(&["job", "stop", "web"], 0, &["finished with status \"complete\""]);
    cli.run(&["job", "status", "web"], 0, &["Status", "dead (stopped)"]);
    cli.run(&["job", "stop", "-purge", "web"], 0, &["finished with status \"complete\""]);
    cli.run(&["job", "status", "web"], 1, &["No job(s) with prefix or ID \"web\" found"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_058_nomads_own_command_registers_makes_copies_and_deletes_volumes() {
    let stage = stage_with_driver("nomad-cli-volumes").await;
    let cli = Cli::by_token(&stage, stage.users).await;
    make_at_driver(&stage.cluster, "known");
    let volume = |id: &str, more: &str| {
        let capability = "capability {\n access_mode = \"single-node-writer\"\n attachment_mode = \"file-system\"\n}";
        let text =
            format!("id = \"{id}\"\nname = \"{id}\"\ntype = \"csi\"\nplugin_id = \"hostdir\"\n{more}\n{capability}\n");
        cli.write(&format!("{id}.hcl"), &text)
    };
    let of = |args: &[&str], code: i32, says: &[&str]| cli.run(&[&["volume"], args].concat(), code, says);
    of(&["register", &volume("known", "external_id = \"vol-known\"")], 0, &[]);
    let secret = volume("secret", "external_id = \"vol-known\"\nsecrets {\n key = \"swordfish\"\n}");
    let told = of(&["register", &secret], 1, &["spec.secretsRef"]);
    assert!(!told.contains("swordfish"), "{told}");
    of(&["status"], 0, &["known", "hostdir"]);
    of(&["status", "known"], 0, &["ID", "= known", "External ID", "= vol-known", "Plugin ID", "= hostdir"]);
    of(&["create", &volume("made", "capacity_min = \"1MiB\"")], 0, &["Created external volume ", "with ID made"]);
    let taken = of(&["snapshot", "create", "made", "nightly"], 0, &["Snapshot ID", "true"]);
    let id = taken.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("an id").to_owned();
    of(&["snapshot", "list", "-plugin", "hostdir"], 0, &[&id]);
    of(&["snapshot", "delete", "hostdir", &id], 0, &[]);
    of(&["delete", "known"], 1, &["it was registered"]);
    of(&["deregister", "known"], 0, &[]);
    of(&["delete", "made"], 0, &[]);
    of(&["status"], 0, &["No CSI volumes"]);
}

/// P-071, P-078: what is checked, planned and run.
fn runs_jobs(cli: &Cli<'_>) {
    let web = cli.write("web.nomad", &file("web", AT_ONCE, "count = 2", QUICKLY, SLEEPS));
    cli.run(&["job", "validate", &web], 0, &["Job validation successful"]);
    let new = ["+ Job: \"web\"", "(2 create)", "All tasks successfully allocated", "Job Modify Index: 0"];
    cli.run(&["job", "plan", &web], 1, &new);
    let begun = ["Monitoring evaluation", "Evaluation triggered by job \"web\"", "Allocation", "created"];
    let deployed = ["Monitoring deployment", "Status      = successful"];
    cli.run(&["job", "run", &web], 0, &[&begun[..], &deployed].concat());
    cli.run(&["job", "plan", &web], 0, &["(2 ignore)", "Job Modify Index: 1"]);
    cli.run(
        &["job", "run", "-check-index", "0", &web],
        1,
        &["Enforcing job modify index 0: the job is there", "Job not updated"],
    );
    cli.run(&["job", "run", "-check-index", "1", &web], 0, &["finished with status \"complete\""]);
    cli.run(&["job", "status"], 0, &["web", "service", "50", "running"]);
    let status = ["ID            = web", "Type          = service", "Status        = running", "Latest Deployment"];
    cli.run(&["job", "status", "web"], 0, &[&status[..], &["successful", "Allocations", "running"]].concat());
    cli.run(&["status", "web"], 0, &status);
    cli.run(&["job", "inspect", "web"], 0, &["\"ID\": \"web\"", "\"MinHealthyTime\": 0"]);
    cli.run(&["job", "plan", "/none.nomad"], 255, &["no such file or directory"]);
    let none = cli.write("none.nomad", &file("none", &format!("type = \"batch\"\n{NOWHERE}"), "", "", "true"));
    let lacking = ["failed to place", "Constraint \"${attr.kernel.name} = plan9\": 1 nodes excluded by filter"];
    cli.run(&["job", "plan", &none], 1, &[&["Failed to place all allocations"], &lacking[..]].concat());
    cli.run(&["job", "run", &none], 2, &[&lacking[..], &["waiting for additional capacity"]].concat());
    cli.run(&["job", "stop", "-purge", "none"], 0, &["finished with status \"complete\""]);
    // P-080.
    let vault = file("vault", AT_ONCE, "", "vault {\n policies = [\"a\"]\n }", "true");
    cli.run(&["job", "run", &cli.write("vault.nomad", &vault)], 1, &["Vault"]);
    cli.run(&["job", "status", "vault"], 1, &["No job(s)"]);
}

fn looks_into_allocations(cli: &Cli<'_>) {
    let id = cli.running("web");
    let alloc = |args: &[&str], code: i32, says: &[&str]| cli.run(&[&["alloc"], args].concat(), code, says);
    let status = ["Job ID              = web", "Client Status       = running", "Recent Events", "Started"];
    alloc(&["status", &id], 0, &status);
    alloc(&["status", &id[..8]], 0, &status);
    alloc(&["logs", &id], 0, &["hello"]);
    alloc(&["logs", "-job", "web"], 0, &["hello"]);
    alloc(&["logs", "-tail", "-n", "1", &id], 0, &["hello"]);
    alloc(&["exec", &id, "/bin/sh", "-c", "echo from inside; exit 7"], 7, &["from inside"]);
    alloc(&["exec", "-job", "web", "/bin/true"], 0, &[]);
    alloc(&["exec", &id, "/bin/sh", "-c", "kill -9 $$"], 137, &[]);
    alloc(&["exec", &id, "/none"], 1, &[]);
    alloc(&["fs", &id], 0, &["alloc/", "t/"]);
    alloc(&["fs", &id, "alloc/logs/t.stdout.0"], 0, &["hello"]);
    alloc(&["fs", "-stat", &id, "alloc/logs/t.stdout.0"], 0, &["6 B"]);
    alloc(&["fs", &id, "none"], 1, &[]);
    alloc(&["checks", &id], 0, &["Status of 0 Nomad Service Checks"]);
    alloc(&["signal", "-s", "SIGURG", &id], 0, &[]);
    alloc(&["restart", "-task", "none", &id], 1, &["none"]);
    alloc(&["restart", &id], 0, &[]);
    alloc(&["stop", &id], 0, &["Monitoring evaluation", "finished with status \"complete\""]);
    alloc(&["status", "00000000-0000-0000-0000-000000000000"], 1, &["No allocation(s) with prefix or id"]);
}

async fn rolls_out(stage: &Stage, cli: &Cli<'_>) {
    let two = cli.write("two.nomad", &file("web", CANARY, "count = 2", QUICKLY, "exec sleep 2000"));
    cli.run(&["job", "plan", &two], 1, &["+/- Job: \"web\"", "(1 canary, 2 ignore)", "forces create/destroy update"]);
    cli.run(&["job", "run", "-detach", &two], 0, &["Job registration successful", "Evaluation ID:"]);
    let is_ready = || cli.try_run(&["job", "promote", "-detach", "web"]).code == 0;
    stage.cluster.eventually("the canary is healthy and promoted", async || is_ready()).await;
    let chosen = "{{range .}}{{if eq .JobVersion 1}}{{.ID}}{{end}}{{end}}";
    let id = cli.run(&["deployment", "list", "-t", chosen], 0, &[]);
    cli.run(&["deployment", "status", "-monitor", id.trim()], 0, &["Status      = successful"]);
    cli.run(&["deployment", "list"], 0, &["web", "1", "successful"]);
    cli.run(&["job", "deployments", "web"], 0, &["successful"]);
    cli.run(&["deployment", "fail", id.trim()], 1, &["terminal"]);
    let history = ["Version     = 1", "Stable      = true", "+/- Job: \"web\"", "Version     = 0"];
    cli.run(&["job", "history", "-p", "web"], 0, &history);
    cli.run(&["job", "revert", "web", "0"], 0, &["finished with status \"complete\""]);
    cli.run(&["job", "revert", "web", "9"], 1, &["9"]);
    let deployed = || cli.try_run(&["job", "status", "web"]).text().contains("Status      = successful");
    stage.cluster.eventually("it is rolled back", async || deployed()).await;
    cli.run(&["job", "scale", "web", "g", "1"], 0, &["finished with status \"complete\""]);
    cli.run(&["job", "scale", "web", "none", "1"], 1, &["none"]);
    cli.run(&["job", "eval", "web"], 0, &["finished with status \"complete\""]);
}

fn launches(cli: &Cli<'_>) {
    let rules = "type = \"batch\"\n parameterized {\n payload = \"optional\"\n meta_required = [\"day\"]\n }";
    let mail = cli.write("mail.nomad", &file("mail", rules, "", "", "true"));
    cli.run(&["job", "run", &mail], 0, &["Job registration successful"]);
    cli.run(&["job", "dispatch", "mail"], 1, &["day"]);
    let says = ["Dispatched Job ID = mail/dispatch-", "finished with status \"complete\""];
    cli.run(&["job", "dispatch", "-meta", "day=monday", "mail"], 0, &says);
    let nightly = file("nightly", "type = \"batch\"\n periodic {\n cron = \"0 3 1 1 *\"\n }", "", "", "true");
    let nightly = cli.write("nightly.nomad", &nightly);
    cli.run(&["job", "run", &nightly], 0, &["Job registration successful", "Approximate next launch time: "]);
    let launched = ["triggered by job \"nightly/periodic-", "finished with status \"complete\""];
    cli.run(&["job", "periodic", "force", "nightly"], 0, &launched);
    cli.run(&["job", "status", "mail"], 0, &["Parameterized = true", "mail/dispatch-"]);
}

fn looks_at_the_cluster(cli: &Cli<'_>) {
    cli.run(&["node", "status"], 0, &["n-1", "eligible", "ready"]);
    cli.run(&["node", "status", "-allocs"], 0, &["Running Allocs", "n-1"]);
    let id = cli.run(&["node", "status", "-t", "{{range .}}{{.ID}}{{end}}"], 0, &[]);
    let used = ["Name            = n-1", "Status          = ready", "Host Resource Utilization", "MHz", "GiB"];
    cli.run(&["node", "status", &id.trim()[..8]], 0, &used);
    // P-081.
    let meta = |args: &[&str], says: &[&str]| cli.run(&[&["node", "meta"], args].concat(), 0, says);
    meta(&["apply", "-node-id", id.trim(), "zone=a"], &[]);
    meta(&["read", "-node-id", id.trim()], &["zone", "= a"]);
    meta(&["apply", "-node-id", id.trim(), "-unset", "zone"], &[]);
    meta(&["apply", "-node-id", id.trim(), "-unset", "rack"], &[]);
    let told: Value = serde_json::from_str(&meta(&["read", "-json", "-node-id", id.trim()], &[])).expect("JSON");
    let keys =
        |of: &str| -> Vec<String> { told[of].as_object().into_iter().flat_map(|it| it.keys().cloned()).collect() };
    assert!(!keys("Meta").contains(&"rack".to_owned()) && keys("Static").contains(&"rack".to_owned()), "{told}");
    cli.run(&["eval", "list"], 0, &["job-register", "web", "complete"]);
    let eval = cli.run(&["eval", "list", "-job", "web", "-t", "{{with index . 0}}{{.ID}}{{end}}"], 0, &[]);
    cli.run(&["eval", "status", eval.trim()], 0, &["Status             = complete", "Job ID             = web"]);
    cli.run(&["server", "members"], 0, &["Leader", "alive", "true", "global"]);
    cli.run(&["agent-info"], 0, &["version"]);
    cli.run(&["operator", "scheduler", "get-config"], 0, &["Scheduler Algorithm", "binpack"]);
    cli.run(&["volume", "status"], 0, &["No CSI volumes"]);
    cli.run(&["plugin", "status"], 0, &["No CSI plugins"]);
    cli.run(&["node", "pool", "list"], 0, &["all", "default"]);
    cli.run(&["node", "pool", "nodes", "default"], 0, &["n-1"]);
    cli.run(&["namespace", "list"], 0, &["default"]);
    cli.run(&["namespace", "status", "default"], 0, &["Name            = default"]);
    cli.run(&["service", "list"], 0, &[]);
    cli.run(&["scaling", "policy", "list"], 0, &["No policies found"]);
    cli.run(&["var", "list"], 0, &[]);
    cli.run(&["acl", "token", "self"], 0, &["Name         = admin"]);
    cli.run(&["acl", "policy", "list"], 0, &["No policies found"]);
    cli.run(&["system", "gc"], 1, &["the controller collects what has ended by itself"]);
}

async fn drains(stage: &Stage, cli: &Cli<'_>) {
    let id = cli.run(&["node", "status", "-t", "{{range .}}{{.ID}}{{end}}"], 0, &[]);
    let id = id.trim();
    cli.run(&["node", "eligibility", "-disable", id], 0, &["ineligible"]);
    cli.run(&["node", "eligibility", "-enable", id], 0, &["eligible"]);
    cli.run(&["node", "drain", "-enable", "-yes", "-detach", "-deadline", "1h", id], 0, &["drain strategy set"]);
    cli.run(&["node", "drain", "-disable", "-yes", id], 0, &["drain strategy unset"]);
    cli.run(&["node", "eligibility", "-enable", id], 0, &["eligible"]);
    // It has moved away, and nowhere else.
    stage.cluster.eventually("it runs again", async || cli.is_settled("web")).await;
}

/// G-033: who has a certificate of the cluster needs no token.
async fn by_certificate(stage: &Stage, users: SocketAddr) {
    let cluster = &stage.cluster;
    let own = Authority::new();
    let get = ["get", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "-o", "json"];
    let map: Value = serde_json::from_str(&cluster.kubectl(&get).expect("read")).expect("JSON");
    let before = map["data"]["client-ca-file"].as_str().unwrap_or_default();
    let patch = json!({ "data": { "client-ca-file": format!("{before}{}", own.pem) } }).to_string();
    cluster
        .kubectl(&["patch", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "-p", &patch])
        .expect("patched");
    let role = ["create", "clusterrolebinding", "certified", "--clusterrole=cluster-admin", "--user=certified"];
    cluster.kubectl(&role).expect("a binding");
    let Proof::Certificate { certificate, key } = own.issue("certified", false) else { unreachable!("a certificate") };
    let put_down = |name: &str, text: &str| {
        let file = cluster.path(name);
        std::fs::write(&file, text).expect("written");
        file.display().to_string()
    };
    let proof = [
        ("NOMAD_CLIENT_CERT", put_down("client.crt", &certificate)),
        ("NOMAD_CLIENT_KEY", put_down("client.key", &key)),
    ];
    let cli = Cli::at_port(stage, users, &proof).await;
    // One command after the other reaches each replica.
    let is_known = || (0..2).all(|_| cli.try_run(&["job", "status", "web"]).code == 0);
    cluster.eventually("the gateway knows the authority", async || is_known()).await;
    cli.run(&["job", "status", "web"], 0, &["Status        = running"]);
    cli.run(&["job", "eval", "web"], 0, &["finished with status \"complete\""]);
    cli.run(&["alloc", "exec", "-job", "web", "/bin/sh", "-c", "exit 7"], 7, &[]);
    let nothing = Cli::at_port(stage, users, &[]).await;
    nothing.run(&["job", "status"], 1, &["Permission denied"]);
}

/// Ends what it was started with.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.kill().expect("ended");
        self.0.wait().expect("waited for");
    }
}

/// G-033: a kubeconfig is enough, by way of the API server.
fn by_proxy(stage: &Stage, users: SocketAddr) {
    use std::io::{BufRead as _, BufReader};

    let kubeconfig = stage.cluster.plane.kubeconfig(User::Admin).display().to_string();
    let drover = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let args = ["nomad", "proxy", "--kubeconfig", &kubeconfig, "--port", "0"];
    let mut proxy = Proxy(drover(&args).spawn().expect("drover"));
    let printed = BufReader::new(proxy.0.stdout.take().expect("an output")).lines();
    let mut environment = Vec::new();
    for (name, line) in ["NOMAD_ADDR", "NOMAD_TOKEN", "NOMAD_NAMESPACE"].into_iter().zip(printed) {
        let line = line.expect("a line");
        let value = line.strip_prefix(&format!("export {name}='")).and_then(|rest| rest.strip_suffix('\''));
        environment.push((name, value.unwrap_or_else(|| unreachable!("{line}")).to_owned()));
    }
    let cli = Cli::new(stage, environment.clone());
    cli.run(&["job", "status", "web"], 0, &["Status        = running"]);
    cli.run(&["job", "eval", "web"], 0, &["finished with status \"complete\""]);
    cli.run(&["alloc", "logs", "-job", "web"], 0, &["hello"]);
    cli.run(&["alloc", "exec", "-job", "web", "/bin/sh", "-c", "echo in; exit 7"], 7, &["in"]);
    cli.run(&["job", "status", "none"], 1, &["No job(s)"]);
    // Another user of the machine, or a page in a browser, knows the port and not the secret.
    let stranger = Cli::new(stage, vec![environment[0].clone(), ("NOMAD_TOKEN", "guess".to_owned())]);
    stranger.run(&["job", "status"], 1, &["give NOMAD_TOKEN"]);
    drop(proxy);

    // At the port itself, with the proof that the kubeconfig holds.
    let address = format!("https://localhost:{}", users.port());
    let mut env = drover(&["nomad", "env", "--kubeconfig", &kubeconfig, "--address", &address]);
    let printed = Ran::of(env.env("XDG_CACHE_HOME", stage.cluster.path("cache")).output().expect("ran")).text();
    let of = |name: &'static str| {
        let value = printed.lines().find_map(|line| line.strip_prefix(&format!("export {name}='"))?.strip_suffix('\''));
        value.map(|value| (name, value.to_owned()))
    };
    let names = ["NOMAD_ADDR", "NOMAD_TLS_SERVER_NAME", "NOMAD_CACERT", "NOMAD_NAMESPACE", "NOMAD_TOKEN"];
    let environment: Vec<_> = names.into_iter().filter_map(of).collect();
    assert_eq!(environment.len(), names.len(), "{printed}");
    Cli::new(stage, environment).run(&["job", "status", "web"], 0, &["Status        = running"]);

    let program = cli.program.parent().expect("a folder").display().to_string();
    let through = |args: &[&str]| {
        let ran =
            drover(&[&["nomad", "--kubeconfig", &kubeconfig, "--"], args].concat()).env("PATH", &program).output();
        Ran::of(ran.expect("ran"))
    };
    assert!(through(&["job", "status", "web"]).text().contains("Status        = running"));
    assert_eq!(through(&["alloc", "exec", "-job", "web", "/bin/sh", "-c", "exit 9"]).code, 9);
    let missing =
        Ran::of(drover(&["nomad", "--kubeconfig", &kubeconfig, "--", "x"]).env("PATH", "/none").output().expect("ran"));
    assert!(missing.code == 1 && missing.err.contains("no program `nomad` in PATH"), "{missing:?}");
}

impl Nomad {
    async fn plan(&self, text: &str) -> Told {
        let parsed = self.send(Method::PUT, "jobs/parse", &[], &json!({ "JobHCL": text }).to_string()).await.json();
        let path = format!("job/{}/plan", parsed["ID"].as_str().expect("an id"));
        self.send(Method::PUT, &path, &[], &json!({ "Job": parsed, "Diff": true }).to_string()).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_043_to_p_046_p_072_p_073_and_p_079_plans_say_what_would_become_of_a_job_and_change_nothing() {
    let stage = Stage::start("nomad-plans", "").await;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let web = |count: &str, of_task: &str, script: &str| file("web", AT_ONCE, count, of_task, script);
    let base = web("count = 2", QUICKLY, SLEEPS);

    // P-043.
    let jobs = async || nomad.get("jobs").await;
    let before = jobs().await.index();
    let told = nomad.plan(&base).await;
    let new = told.json();
    let updates = |plan: &Value| plan["Annotations"]["DesiredTGUpdates"]["g"].clone();
    assert_eq!((&updates(&new)["Place"], &new["JobModifyIndex"]), (&json!(2), &json!(0)), "{new}");
    assert_eq!((&new["Diff"]["Type"], &new["FailedTGAllocs"]), (&json!("Added"), &Value::Null), "{new}");
    assert_eq!((jobs().await.index(), jobs().await.each("ID")), (before, Vec::new()));
    // Whoever may not register it may not plan it: a plan tells of nodes and of others' allocations.
    let developer = Nomad::of(&stage, User::Developer).await;
    assert_eq!(developer.plan(&base).await.code, 403);
    // Nor does a right to read jobs lead to nodes.
    let node = nomad.get("nodes").await.each("ID").remove(0);
    let path = |what: &str| format!("client/{what}?node_id={node}");
    let change = json!({ "Meta": { "rack": "mine" } }).to_string();
    assert_eq!(developer.send(Method::POST, &path("metadata"), &[], &change).await.code, 403);
    assert_eq!((developer.get(&path("stats")).await.code, developer.get(&path("metadata")).await.code), (403, 403));
    assert_eq!(nomad.get("client/stats?node_id=none").await.code, 404);
    assert_eq!(nomad.get("client/stats").await.code, 400);

    nomad.run(&base).await;
    let status = async || nomad.get("job/web/deployment").await.json()["Status"].clone();
    stage.cluster.eventually("it is deployed", async || status().await == "successful").await;
    let same = nomad.plan(&base).await.json();
    assert_eq!((&updates(&same)["Ignore"], &same["Diff"]["Type"]), (&json!(2), &json!("None")), "{same}");
    assert_eq!(same["JobModifyIndex"], 1);

    // P-044.
    let counts = |diff: &Value| diff["TaskGroups"][0]["Fields"][0].clone();
    for (count, forces, updated) in [(4, "forces create", "create"), (1, "forces destroy", "destroy")] {
        let plan = nomad.plan(&web(&format!("count = {count}"), QUICKLY, SLEEPS)).await.json();
        let field = counts(&plan["Diff"]);
        assert_eq!((&field["Name"], &field["Annotations"]), (&json!("Count"), &json!([forces])), "{plan}");
        assert!(plan["Diff"]["TaskGroups"][0]["Updates"][updated].as_i64() > Some(0), "{plan}");
    }
    let task = |plan: &Value| plan["Diff"]["TaskGroups"][0]["Tasks"][0]["Annotations"].clone();
    let replaced = nomad.plan(&web("count = 2", QUICKLY, "exec sleep 2000")).await.json();
    assert_eq!(
        (task(&replaced), &updates(&replaced)["DestructiveUpdate"]),
        (json!(["forces create/destroy update"]), &json!(1))
    );
    let kept = nomad.plan(&web("count = 2", "kill_timeout = \"3s\"", SLEEPS)).await.json();
    assert_eq!((task(&kept), &updates(&kept)["InPlaceUpdate"]), (json!(["forces in-place update"]), &json!(2)));

    // P-045.
    let nowhere = nomad.plan(&file("none", NOWHERE, "", "", "true")).await.json();
    let filtered = &nowhere["FailedTGAllocs"]["g"]["ConstraintFiltered"];
    assert_eq!(filtered, &json!({ "${attr.kernel.name} = plan9": 1 }), "{nowhere}");
    assert_eq!(nowhere["CreatedEvals"][0]["Status"], "blocked", "{nowhere}");

    // P-046.
    let canary = nomad.plan(&file("web", CANARY, "count = 2", QUICKLY, "exec sleep 2000")).await.json();
    assert_eq!((&updates(&canary)["Canary"], &updates(&canary)["Ignore"]), (&json!(1), &json!(2)), "{canary}");
    // Nothing of all that has happened.
    let versions = nomad.get("job/web/versions").await.json();
    assert_eq!(
        (versions["Versions"].as_array().map(Vec::len), jobs().await.each("ID")),
        (Some(1), vec!["web".to_owned()])
    );

    told_allocations(&stage, &nomad).await;
    stage.cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

/// P-072, P-073, P-079.
async fn told_allocations(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let reschedule = "reschedule {\n attempts = 5\n interval = \"1h\"\n delay = \"30s\"\n delay_function = \"constant\"\n unlimited = false\n }";
    let restart = "restart {\n attempts = 3\n delay = \"1s\"\n interval = \"1h\"\n }";
    let once = "[ -e $NOMAD_ALLOC_DIR/seen ] && exec sleep 1000; touch $NOMAD_ALLOC_DIR/seen; exit 3";
    let script = once.replace('$', "$$").replace("$$NOMAD", "$NOMAD");
    nomad.run(&file("again", AT_ONCE, &format!("{reschedule}\n{restart}"), QUICKLY, &script)).await;
    let found = async || -> Value {
        let id = nomad.get("job/again/allocations").await.each("ID");
        match id.first() {
            Some(id) => nomad.get(&format!("allocation/{id}")).await.json(),
            None => Value::Null,
        }
    };
    let restarted = async || {
        let task = found().await["TaskStates"]["t"].clone();
        task["Restarts"] == 1 && task["State"] == "running"
    };
    cluster.eventually("its task was restarted", async || restarted().await).await;
    let alloc = found().await;
    // P-072.
    let scores = alloc["Metrics"]["ScoreMetaData"].as_array().expect("scores");
    assert!(scores.iter().any(|score| score["NodeID"] == alloc["NodeID"] && score["NormScore"].is_number()), "{alloc}");
    assert_eq!(alloc["Name"], "again.g[0]");
    // P-079.
    let id = alloc["ID"].as_str().expect("an id").to_owned();
    assert_eq!(nomad.send(Method::PUT, &format!("client/allocation/{id}/restart"), &[], "{}").await.code, 200);
    let twice = async || found().await["TaskStates"]["t"]["Restarts"] == 2;
    cluster.eventually("it was restarted by its user", async || twice().await).await;
    let events = found().await["TaskStates"]["t"]["Events"].clone();
    let details = |kind: &str| -> BTreeSet<String> {
        let all = events.as_array().expect("events").iter();
        let of_kind = all.filter(|event| event["Type"] == kind).map(|event| event["Details"].as_object().cloned());
        let last = of_kind.flatten().last().unwrap_or_else(|| unreachable!("no {kind} in {events}"));
        assert!(last.values().all(Value::is_string), "{kind}: {last:?}");
        last.keys().cloned().collect()
    };
    let keys = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|key| (*key).to_owned()).collect() };
    assert_eq!(details("Terminated"), keys(&["exit_code", "oom_killed", "signal"]));
    assert_eq!(details("Restarting"), keys(&["restart_reason", "start_delay"]));
    assert_eq!(details("Restart Signaled"), keys(&["restart_reason"]));

    // P-073: two of three events are within the interval.
    let now = drover_clock::Clock::now(&drover_clock::SystemClock);
    let event = |minutes: i64, n: i64| {
        let at = now - jiff::SignedDuration::from_mins(minutes);
        json!({ "time": at.to_string(), "prevAllocID": format!("before-{n}"), "prevNodeName": "n-1", "delay": "30s" })
    };
    let tracker = json!({ "spec": { "rescheduleTracker": { "events": [event(120, 0), event(20, 1), event(10, 2)] } } });
    let name = cluster.allocs("default").await.into_iter().find(|it| it.metadata.uid.as_deref() == Some(&id));
    let name = name.and_then(|it| it.metadata.name).expect("a name");
    cluster.kubectl(&["patch", "alloc", &name, "--type=merge", "-p", &tracker.to_string()]).expect("patched");
    let cli = Cli::by_token(stage, stage.users).await;
    let shown = || cli.try_run(&["alloc", "status", &id]).text().contains("Reschedule Attempts = 2/5");
    cluster.eventually("the command line counts them", async || shown()).await;
    // P-079: what is killed says how long it may take.
    nomad.send(Method::DELETE, "job/again", &[], "").await.json();
    let killed = async || {
        let events = found().await["TaskStates"]["t"]["Events"].clone();
        events.as_array().into_iter().flatten().any(|it| it["Details"] == json!({ "kill_timeout": "2s" }))
    };
    cluster.eventually("it is killed", async || killed().await).await;
}
