//! Identities of tasks: tokens that the gateway signs, which others check by its published keys, and which are callers
//! of its own API.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover_api::allocation::{ClientStatus, TaskEventType};
use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};

use crate::cluster::client_status;
use crate::gateway::{API, NODE, Stage, agent_config};
use crate::gateway_values::{alloc_of, holders, messages, with_secrets};

/// What the gateway's port for users answers: the code and the text.
struct Asked {
    code: String,
    text: String,
}

/// A file with the authority of the gateway's certificate.
fn authority(stage: &Stage) -> PathBuf {
    let path = stage.cluster.path("gateway-ca.crt");
    std::fs::write(&path, stage.authority()).expect("a file");
    path
}

/// Asks the port for users itself, by a header.
fn ask(stage: &Stage, header: &str, path: &str) -> Asked {
    let port = stage.users.port();
    let output = Command::new("curl")
        .args(["-s", "--cacert", &authority(stage).display().to_string(), "-w", "\n%{http_code}"])
        .args(["--resolve", &format!("localhost:{port}:127.0.0.1"), "-H", header])
        .arg(format!("https://localhost:{port}{path}"))
        .output()
        .expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, code) = text.rsplit_once('\n').expect("a code");
    Asked { code: code.to_owned(), text: text.to_owned() }
}

fn with_token(stage: &Stage, token: &str, path: &str) -> Asked {
    ask(stage, &format!("Authorization: Bearer {token}"), path)
}

/// The published keys.
fn keys(stage: &Stage) -> Vec<Value> {
    let answer = ask(stage, "Accept: */*", "/.well-known/jwks.json");
    assert_eq!(answer.code, "200", "{}", answer.text);
    let mut keys: Value = serde_json::from_str(&answer.text).expect("JSON");
    serde_json::from_value(keys["keys"].take()).expect("a list")
}

/// The key's name and what the token says, as others find out who know nothing but the published keys.
fn verified(stage: &Stage, token: &str) -> (String, Value) {
    let header = jsonwebtoken::decode_header(token).expect("a token");
    assert_eq!(header.alg, Algorithm::EdDSA);
    let kid = header.kid.expect("a key's name");
    let key = keys(stage).into_iter().find(|key| key["kid"] == kid.as_str()).expect("a published key");
    let mut validation = Validation::new(Algorithm::EdDSA);
    (validation.validate_exp, validation.validate_aud) = (false, false);
    validation.required_spec_claims.clear();
    let key = DecodingKey::from_ed_components(key["x"].as_str().expect("a key")).expect("a key");
    (kid, jsonwebtoken::decode::<Value>(token, &key, &validation).expect("a signature that holds").claims)
}

/// A file as the task sees it: `alloc fs` shows none that is for secrets.
fn read(stage: &Stage, alloc: &str, file: &str) -> String {
    stage.exec(User::Admin, alloc, &["/bin/cat", file], b"").text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_146_a_147_a_176_b_062_and_g_060_tokens_say_which_task_it_is_to_others_and_to_the_gateway() {
    let config = "identities: {issuer: \"https://id.example.com\", keyLife: 30s}\n";
    let stage = Stage::start("identities", config).await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let identities = json!([
        { "name": "default", "file": true, "env": true },
        { "name": "vault", "aud": ["vault.example.com"], "file": true, "filepath": "local/vault.jwt", "ttl": "22s",
          "changeMode": "signal", "changeSignal": "SIGHUP", "extraClaims": { "team": "shop" } },
    ]);
    // Each signal is a line with the token that was there then.
    let script = "printf %s \"$NOMAD_TOKEN\" > ../alloc/data/variable; \
                  trap '{ cat local/vault.jwt; echo; } >> ../alloc/data/renewed' HUP; while :; do sleep 0.1; done";
    let web = |name: &str| with_secrets(name, script, &json!({ "identities": identities }));
    cluster.apply("shop", &web("web"));
    cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    let alloc = alloc_of(&stage, "web").await;
    let (name, uid) = (alloc.metadata.name.clone().expect("a name"), alloc.metadata.uid.clone().expect("a uid"));

    //
    let token = read(&stage, &name, "secrets/nomad_token");
    let (first_key, claims) = verified(&stage, &token);
    let expected = [
        ("iss", json!("https://id.example.com")),
        ("sub", json!("global:shop:web:g:t:default")),
        ("aud", json!(["drover.dev"])),
        ("nomad_namespace", json!("shop")),
        ("nomad_job_id", json!("web")),
        ("nomad_allocation_id", json!(uid)),
        ("nomad_task", json!("t")),
    ];
    for (claim, value) in expected {
        assert_eq!(claims[claim], value, "{claim} in {claims}");
    }
    assert!(claims["iat"] == claims["nbf"] && claims.get("exp").is_none() && claims["jti"].is_string(), "{claims}");
    let variable = async || read(&stage, &name, "../alloc/data/variable") == token;
    cluster.eventually("the variable is the file's token", variable).await;
    let vault = read(&stage, &name, "local/vault.jwt");
    let (_, claims) = verified(&stage, &vault);
    assert_eq!(
        (&claims["sub"], &claims["aud"], &claims["extra_claims"]),
        (&json!("global:shop:web:g:t:vault"), &json!(["vault.example.com"]), &json!({ "team": "shop" }))
    );
    assert_eq!(claims["exp"].as_i64().expect("an end") - claims["iat"].as_i64().expect("a begin"), 22);
    let discovery = ask(&stage, "Accept: */*", "/.well-known/openid-configuration");
    assert!(discovery.text.contains("https://id.example.com/.well-known/jwks.json"), "{}", discovery.text);

    // a caller, whose user and groups Roles name.
    let stats = format!("{API}/namespaces/shop/allocations/{name}/stats");
    let refused = with_token(&stage, &token, &stats);
    let user = "drover:task:shop:web:g:t";
    assert!(refused.code == "403" && refused.text.contains(user), "{} {}", refused.code, refused.text);
    let group = "--group=drover:job:shop:web";
    cluster
        .kubectl(&["create", "rolebinding", "tasks", "-n", "shop", "--clusterrole=drover-edit", group])
        .expect("bound");
    let is_open = async || with_token(&stage, &token, &stats).code == "200";
    cluster.eventually("the role is in force", is_open).await;
    assert_eq!(ask(&stage, &format!("X-Nomad-Token: {token}"), &stats).code, "200");

    // what another has signed, what was changed, and what is for others.
    let parts: Vec<&str> = token.split('.').collect();
    let mut forged: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).expect("base64")).expect("claims");
    forged["nomad_job_id"] = json!("other");
    let forged = URL_SAFE_NO_PAD.encode(forged.to_string());
    let changed = format!("{}.{forged}.{}", parts[0], parts[2]);
    let own = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let header = jsonwebtoken::decode_header(&token).expect("a header");
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).expect("base64")).expect("claims");
    let foreign = jsonwebtoken::encode(&header, &claims, &jsonwebtoken::EncodingKey::from_ed_der(&own.serialize_der()));
    for (what, wrong) in [("changed", changed), ("foreign", foreign.expect("a token")), ("for others", vault.clone())] {
        let answer = with_token(&stage, &wrong, &stats);
        assert_eq!(answer.code, "403", "{what}: {}", answer.text);
    }

    // G-060: who is called so elsewhere is none.
    let admin = ["--as", user, "--as-group", "drover:job:shop:web", "get", "--raw", &stats];
    let refused = cluster.kubectl(&admin).expect_err("refused");
    assert!(refused.contains("is a name of tasks") || refused.contains("Unauthorized"), "{refused}");

    // Renewed at half of its life: in the file before the signal, and neither is told again.
    let renewed = || {
        let lines = stage.alloc(User::Admin, &["fs", &name, "alloc/data/renewed"]);
        let lines = String::from_utf8_lossy(&lines.out).into_owned();
        lines.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    cluster.eventually("it is renewed", async || !renewed().is_empty()).await;
    let lines = renewed();
    assert_ne!(lines[0], vault);
    let (_, next) = verified(&stage, &lines[0]);
    assert!(next["iat"].as_i64() > claims["iat"].as_i64(), "{next}");

    // B-062: another key signs; what the first has signed counts on, as long as its allocation lives.
    cluster.eventually("another key is published", async || keys(&stage).len() > 1).await;
    let signs = async || {
        let last = renewed().pop().expect("a token");
        jsonwebtoken::decode_header(&last).is_ok_and(|header| header.kid.as_ref() != Some(&first_key))
    };
    cluster.eventually("the other key signs", signs).await;
    assert_eq!(with_token(&stage, &token, &stats).code, "200");
    assert_eq!(read(&stage, &name, "secrets/nomad_token"), token, "it has no limit and is not renewed");

    // Nothing is restarted by all this, and no token is where others look.
    let after = alloc_of(&stage, "web").await;
    assert_eq!(after.status.expect("a status").task_states["t"].restarts, 0);
    for kind in ["jobs", "allocations", "jobversions", "clientnodes"] {
        let all = cluster.kubectl(&["get", &format!("{kind}.drover.dev"), "-A", "-o", "json"]).expect(kind);
        assert!(!all.contains(parts[2]), "{kind} hold a token");
    }
    let signature = parts[2];
    let files = holders(&cluster.path(""), signature);
    let own_files = ["/t/secrets/nomad_token", "/alloc/data/variable"];
    let beside: Vec<&String> = files.iter().filter(|path| !own_files.iter().any(|own| path.ends_with(own))).collect();
    assert!(beside.is_empty() && files.len() == 2, "{files:?}");

    // A-146, B-062: with its allocation it ends.
    cluster.apply("shop", &with_secrets("web", "exit 0", &json!({ "identities": identities })));
    let ended = async || {
        let all = cluster.allocs("shop").await;
        let found = all.iter().find(|it| it.metadata.uid.as_deref() == Some(&uid));
        found.is_some_and(|it| client_status(it) == ClientStatus::Complete)
    };
    cluster.eventually("it has ended", ended).await;
    let answer = with_token(&stage, &token, &stats);
    assert!(answer.code == "403" && answer.text.contains("has ended"), "{} {}", answer.code, answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_150_a_token_is_the_tasks_users_alone_and_the_example_shows_its_own() {
    let stage = Stage::start("identities-example", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let file = drover_testkit::workspace::root().join("examples/configuration/identity.yaml").display().to_string();
    cluster.kubectl(&["apply", "-n", "shop", "-f", &file]).expect("applied");
    let mut web = with_secrets(
        "web",
        "exec sleep 1000",
        &json!({ "identities": [{ "name": "default", "file": true }], "user": "nobody" }),
    );
    web["spec"]["groups"][0]["tasks"][0]["driver"] = json!("exec");
    cluster.apply("shop", &web);
    for job in ["signed", "web"] {
        cluster.condition("shop", job, JobConditionType::Ready, "True").await;
    }
    let signed = alloc_of(&stage, "signed").await.metadata.name.expect("a name");
    let logs = async || stage.alloc(User::Admin, &["logs", &signed]).text();
    let sub = "\"sub\":\"global:shop:signed:signed:signed:vault\"";
    cluster.eventually("it shows what its token says", async || logs().await.contains(sub)).await;

    let uid = alloc_of(&stage, "web").await.metadata.uid.expect("a uid");
    let tokens = holders(&cluster.path(""), "eyJ");
    let of_web = |path: &&String| path.contains(&uid) && path.ends_with("/t/secrets/nomad_token");
    let path = tokens.iter().find(of_web).expect("a token's file");
    let found = std::fs::metadata(path).expect("metadata");
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o600, 65534));
}

/// Asks the task's own socket from within the task: the code, and the text.
fn ask_inside(stage: &Stage, alloc: &str, header: &str, path: &str) -> Asked {
    let curl = "curl -s -m 20 --unix-socket \"${NOMAD_UNIX_ADDR#unix://}\" -w '\\n%{http_code}'";
    let script = format!("{curl} -H \"{header}\" 'http://localhost{path}'");
    let text = stage.exec(User::Admin, alloc, &["/bin/sh", "-c", &script], b"").text();
    let (text, code) = text.rsplit_once('\n').expect("a code");
    Asked { code: code.to_owned(), text: text.to_owned() }
}

/// G-059: there are `web` and `plain`, and none has a right yet.
async fn g_059_a_task_reads_its_own_job_and_of_others_what_its_job_is_bound_to(stage: &Stage) {
    let cluster = &stage.cluster;
    cluster.namespace("depot").await;
    cluster.apply("depot", &with_secrets("web", "exec sleep 1000", &json!({})));
    let name = async |job: &str| alloc_of(stage, job).await.metadata.name.expect("a name");
    let (web, plain) = (name("web").await, name("plain").await);
    let own = "X-Nomad-Token: $(cat \"$NOMAD_SECRETS_DIR/nomad_token\")";
    let reads = |alloc: &str, path: &str| ask_inside(stage, alloc, own, path);
    for below in ["", "/summary", "/scale", "/evaluations"] {
        let answer = reads(&web, &format!("/v1/job/web{below}?namespace=shop"));
        assert_eq!(answer.code, "200", "{below}: {}", answer.text);
    }
    let told: Value = serde_json::from_str(&reads(&web, "/v1/job/web?namespace=shop").text).expect("JSON");
    assert_eq!((&told["ID"], &told["Namespace"]), (&json!("web"), &json!("shop")));
    // Others' jobs, those of the same name elsewhere, all, what is more than the job, and any write.
    for path in [
        "/v1/job/plain?namespace=shop",
        "/v1/job/web?namespace=depot",
        "/v1/job/web?namespace=*",
        "/v1/jobs?namespace=shop",
        "/v1/job/web/allocations?namespace=shop",
        "/v1/job/web/versions?namespace=shop",
    ] {
        let answer = reads(&web, path);
        assert_eq!(answer.code, "403", "{path}: {}", answer.text);
    }
    let delete = "X-Nomad-Token: $(cat \"$NOMAD_SECRETS_DIR/nomad_token\")\" -X DELETE -H \"A: b";
    let refused = ask_inside(stage, &web, delete, "/v1/job/web?namespace=shop");
    assert_eq!(refused.code, "403", "{}", refused.text);

    let group = "--group=drover:job:shop:web";
    let bind = ["create", "rolebinding", "web", "-n", "depot", "--clusterrole=drover-view", group];
    cluster.kubectl(&bind).expect("bound");
    let bound = async || reads(&web, "/v1/job/web?namespace=depot").code == "200";
    cluster.eventually("its job is bound there", bound).await;
    assert_eq!(reads(&plain, "/v1/job/web?namespace=depot").code, "403");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_148_b_064_p_076_g_059_and_g_060_a_tasks_socket_takes_its_requests_to_the_gateway_and_adds_no_right() {
    let mut stage = Stage::start("task-api", "").await;
    stage.cluster.namespace("shop").await;
    let identities = json!({ "identities": [{ "name": "default", "file": true, "env": true }] });
    let script = "while :; do sleep 0.1; done";
    let mut sandboxed = with_secrets("web", script, &identities);
    sandboxed["spec"]["groups"][0]["tasks"][0]["driver"] = json!("exec");
    // Room for a dozen callers.
    sandboxed["spec"]["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": 10, "memoryMB": 200 });
    stage.cluster.apply("shop", &sandboxed);
    stage.cluster.apply("shop", &with_secrets("plain", script, &identities));
    // Asks on and on, and keeps the newest code; an answer that takes two seconds is none.
    let asks = format!(
        "while :; do curl -s -m 2 --unix-socket secrets/api.sock -o /dev/null -w '%{{http_code}}' \
         -H \"X-Nomad-Token: $NOMAD_TOKEN\" http://localhost{API} > ../alloc/data/new; \
         mv ../alloc/data/new ../alloc/data/code; sleep 0.2; done"
    );
    stage.cluster.apply("shop", &with_secrets("asks", &asks, &identities));
    for job in ["web", "plain", "asks"] {
        stage.cluster.condition("shop", job, JobConditionType::Ready, "True").await;
    }
    g_059_a_task_reads_its_own_job_and_of_others_what_its_job_is_bound_to(&stage).await;
    let group = "--group=drover:tasks:shop";
    let bind = ["create", "rolebinding", "tasks", "-n", "shop", "--clusterrole=drover-edit", group];
    stage.cluster.kubectl(&bind).expect("bound");
    let discovery = API;
    for job in ["web", "plain"] {
        let name = alloc_of(&stage, job).await.metadata.name.expect("a name");
        let stats = format!("{API}/namespaces/shop/allocations/{name}/stats");
        let own = "X-Nomad-Token: $(cat \"$NOMAD_SECRETS_DIR/nomad_token\")";
        let answered = async || ask_inside(&stage, &name, own, &stats).code == "200";
        stage.cluster.eventually("its own token is good", answered).await;
        let uuid = "X-Nomad-Token: 123e4567-e89b-12d3-a456-426614174000";
        // What the gateway tells anyone needs a token here too, and no name in a header counts.
        let cases = [
            ("Accept: */*", "401"),
            ("Authorization: Bearer garbage", "400"),
            (uuid, "403"),
            ("Authorization: Bearer $NOMAD_TOKEN", "200"),
            ("X-Remote-User: system:admin", "401"),
        ];
        for (header, code) in cases {
            let path = if code == "403" { &stats } else { discovery };
            let answer = ask_inside(&stage, &name, header, path);
            assert_eq!(answer.code, code, "{job}: {header}: {}", answer.text);
        }
        // The right of this role ends where the role does.
        let other = format!("{API}/namespaces/drover-system/allocations/{name}/stats");
        assert_eq!(ask_inside(&stage, &name, own, &other).code, "403");
        // A stream goes through, and so does a signal to itself.
        let logs = format!("{API}/namespaces/shop/allocations/{name}/log?task=t&type=stdout");
        assert_eq!(ask_inside(&stage, &name, own, &logs).code, "200");
    }
    let name = alloc_of(&stage, "web").await.metadata.name.expect("a name");
    let shows = "ls -ln /secrets/api.sock | cut -c1-10; stat -c %u /secrets/api.sock; id -u";
    let found = stage.exec(User::Admin, &name, &["/bin/sh", "-c", shows], b"").text();
    let found: Vec<&str> = found.lines().collect();
    assert!(found[0] == "srw-------" && found[1] == found[2], "{found:?}");

    // P-076: of an allocation that has ended, from the socket of another one.
    stage.cluster.apply("shop", &with_secrets("brief", "exec sleep 1000", &identities));
    stage.cluster.condition("shop", "brief", JobConditionType::Ready, "True").await;
    let brief = alloc_of(&stage, "brief").await.metadata.name.expect("a name");
    let token = read(&stage, &brief, "secrets/nomad_token");
    let header = format!("X-Nomad-Token: {token}");
    let stats = format!("{API}/namespaces/shop/allocations/{name}/stats");
    assert_eq!(ask_inside(&stage, &name, &header, &stats).code, "200");
    assert_eq!(stage.alloc(User::Admin, &["stop", &brief]).code, 0);
    let refused = async || ask_inside(&stage, &name, &header, &stats).code == "403";
    stage.cluster.eventually("it counts no more", refused).await;

    // More than eight at a time are refused, and the others are not disturbed.
    let follow = format!("{API}/namespaces/shop/allocations/{name}/log?task=t&type=stdout&follow=true");
    // Those who follow do so until all were answered.
    let many = format!(
        "cd \"$NOMAD_ALLOC_DIR/data\" && for n in 1 2 3 4 5 6 7 8 9 10 11 12; do curl -sN -o /dev/null -D head.$n \
         --unix-socket \"${{NOMAD_UNIX_ADDR#unix://}}\" -H \"X-Nomad-Token: $NOMAD_TOKEN\" 'http://localhost{follow}' & pids=\"$pids $!\"; done; \
         for n in $(seq 600); do [ $(cat head.* | grep -c ^HTTP) = 12 ] && break; sleep 0.1; done; kill $pids; cut -s -d' ' -f2 head.* | grep '^[0-9][0-9][0-9]$'"
    );
    let codes = stage.exec(User::Admin, &name, &["/bin/sh", "-c", &many], b"").text();
    let count = |code: &str| codes.lines().filter(|line| *line == code).count();
    assert_eq!((count("200"), count("429")), (8, 4), "{codes}");

    // An agent that comes back serves the task that it finds.
    let config = agent_config(&stage.cluster, NODE, Some((stage.agents, stage.users))).await;
    stage.agent.take().expect("an agent").abandon();
    stage.agent = Some(stage.cluster.agent_more(NODE, &stage.cluster.plane.kubeconfig(User::Agent), &config));
    stage.cluster.ready(NODE).await;
    let uid = alloc_of(&stage, "asks").await.metadata.uid.expect("a uid");
    let code = stage.cluster.path(NODE).join("allocs").join(uid).join("alloc/data/code");
    let answered = async |wanted: &str| std::fs::read_to_string(&code).is_ok_and(|code| code == wanted);
    stage.cluster.eventually("the socket is served again", async || answered("200").await).await;

    // G-060: a gateway that stands still, and one that is gone.
    stage.gateway.as_ref().expect("a gateway").freeze();
    stage.cluster.eventually("without a gateway it says so at once", async || answered("503").await).await;
    stage.gateway.as_ref().expect("a gateway").thaw();
    stage.cluster.eventually("it goes on", async || answered("200").await).await;
    stage.gateway.take().expect("a gateway").kill();
    stage.cluster.eventually("without a gateway it says so at once", async || answered("503").await).await;
    for job in ["web", "asks"] {
        assert_eq!(alloc_of(&stage, job).await.status.expect("a status").task_states["t"].restarts, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_063_a_service_accounts_token_is_for_its_audience_and_bound_to_the_node() {
    let stage = Stage::start("account-tokens", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    // What the chart's `gateway.secretNamespaces[].serviceAccounts` makes.
    let role = ["--verb=create", "--resource=serviceaccounts/token", "--resource-name=own", "--resource-name=late"];
    cluster.kubectl(&[&["create", "role", "tokens", "-n", "shop"][..], &role].concat()).expect("a role");
    let user = format!("--user={}", User::Gateway.name());
    cluster.kubectl(&["create", "rolebinding", "tokens", "-n", "shop", "--role=tokens", &user]).expect("a binding");
    let account =
        |name: &str| drop(cluster.kubectl(&["create", "serviceaccount", name, "-n", "shop"]).expect("an account"));
    account("own");
    account("closed");
    let once = json!({ "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" });
    for name in ["own", "closed", "late"] {
        let identity = json!({ "name": "aws", "aud": ["sts.example.com"], "ttl": "20m", "file": true, "env": true,
                               "changeMode": "restart", "kubernetes": { "serviceAccount": name } });
        let more = json!({ "identities": [identity], "restart": once });
        cluster.apply("shop", &with_secrets(name, "exec sleep 1000", &more));
    }
    cluster.condition("shop", "own", JobConditionType::Ready, "True").await;
    let alloc = alloc_of(&stage, "own").await.metadata.name.expect("a name");
    let token = read(&stage, &alloc, "secrets/nomad_aws.jwt");
    let reviewed = |audience: &str| -> Value {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                             "spec": { "token": token, "audiences": [audience] } });
        let args = ["create", "-f", "-", "-o", "json"];
        let answer = cluster.kubectl_with(&args, Some(&review.to_string())).expect("a review");
        serde_json::from_str::<Value>(&answer).expect("JSON")["status"].take()
    };
    let status = reviewed("sts.example.com");
    assert_eq!(status["user"]["username"], json!("system:serviceaccount:shop:own"), "{status}");
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/node-name"], json!([NODE]), "{status}");
    assert_ne!(reviewed("https://kubernetes.default.svc")["authenticated"], json!(true));
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).expect("claims")).expect("base64");
    let claims: Value = serde_json::from_slice(&claims).expect("JSON");
    assert_eq!(claims["exp"].as_i64().expect("an end") - claims["iat"].as_i64().expect("a begin"), 1200, "{claims}");

    // One that the gateway may not make, and one of an account that comes later.
    let told = async |job: &str, of: TaskEventType, part: &str| {
        let all = cluster.allocs("shop").await;
        all.iter().filter(|it| it.spec.job_name == job).flat_map(|it| messages(it, of)).any(|text| text.contains(part))
    };
    let closed =
        async || told("closed", TaskEventType::SetupFailure, "gateway.secretNamespaces[].serviceAccounts").await;
    cluster.eventually("it is refused by name", closed).await;
    let late = async || told("late", TaskEventType::Template, "create it").await;
    cluster.eventually("it waits and says for what", late).await;
    account("late");
    cluster.condition("shop", "late", JobConditionType::Ready, "True").await;
}
