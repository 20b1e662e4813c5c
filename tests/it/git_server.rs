//! A server of git repositories on the loopback device: what `git http-backend` says, for those who know the password.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::web_server::{head, serve};

/// What a request must have.
pub(crate) const AUTHORIZATION: &str = "Basic dXNlcjpjYW5hcnk=";

/// Serves one repository; it ends with the test.
pub(crate) struct GitServer {
    pub(crate) port: u16,
    /// Digits of the second last commit of the branch `main`.
    pub(crate) earlier: String,
    _root: TempDir,
    _answering: JoinSet<()>,
}

impl GitServer {
    /// A repository `app.git`: on `main` three commits of `notes`, the first one tagged `v1`; a program and a file in
    /// `bin`; on `links` a link, on `modules` a submodule, and on `bomb` and
    /// `large` files of 64 and 129 MiB of nothing.
    pub(crate) async fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let work = root.path().join("work");
        fs::create_dir(&work).expect("a directory");
        git(&work, &["init", "--quiet", "--initial-branch=main"]).await;
        fs::create_dir_all(work.join("bin/deep")).expect("a directory");
        fs::write(work.join("notes"), "first\n").expect("written");
        fs::write(work.join("bin/run"), "#!/bin/sh\necho run\n").expect("written");
        fs::set_permissions(work.join("bin/run"), fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::write(work.join("bin/deep/data"), "data\n".repeat(4096)).expect("written");
        git(&work, &["add", "."]).await;
        git(&work, &["commit", "--quiet", "--message=first"]).await;
        git(&work, &["tag", "--annotate", "--message=one", "v1"]).await;
        fs::write(work.join("notes"), "second\n").expect("written");
        git(&work, &["commit", "--quiet", "--all", "--message=second"]).await;
        let earlier = git(&work, &["rev-parse", "HEAD"]).await;
        fs::write(work.join("notes"), "third\n").expect("written");
        git(&work, &["commit", "--quiet", "--all", "--message=third"]).await;
        git(&work, &["checkout", "--quiet", "-b", "links"]).await;
        symlink("/etc/passwd", work.join("passwd")).expect("a link");
        git(&work, &["add", "."]).await;
        git(&work, &["commit", "--quiet", "--message=a link"]).await;
        git(&work, &["checkout", "--quiet", "-b", "modules", "main"]).await;
        git(&work, &["update-index", "--add", "--cacheinfo", &format!("160000,{earlier},library")]).await;
        git(&work, &["commit", "--quiet", "--message=a submodule"]).await;
        for (branch, megabytes) in [("bomb", 64), ("large", 129)] {
            git(&work, &["checkout", "--quiet", "-b", branch, "main"]).await;
            let file = fs::File::create(work.join("zeros")).expect("a file");
            file.set_len(megabytes << 20).expect("its length");
            git(&work, &["add", "."]).await;
            git(&work, &["commit", "--quiet", "--message=zeros"]).await;
        }
        git(&work, &["checkout", "--quiet", "main"]).await;
        git(root.path(), &["clone", "--quiet", "--bare", "work", "app.git"]).await;
        let served = root.path().to_owned();
        let (port, answering) = serve(move |stream| answer(stream, served.clone())).await;
        Self { port, earlier, _root: root, _answering: answering }
    }

    /// The source of an artifact.
    pub(crate) fn at(&self, what: &str) -> String {
        format!("git::http://127.0.0.1:{}/app.git{what}", self.port)
    }
}

async fn git(dir: &Path, arguments: &[&str]) -> String {
    let done = Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=test", "-c", "user.email=test@example.com"])
        .args(arguments)
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
        .output()
        .await
        .expect("git runs: install it by `apt-get install git`");
    assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text").trim().to_owned()
}

/// Answers one request, as a web server does that runs programs (RFC 3875).
async fn answer(mut stream: TcpStream, root: PathBuf) {
    let Some(head) = head(&mut stream).await else { return };
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).unwrap_or_default()
    };
    let mut body = vec![0; field("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).await.expect("a body");
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let answer = if field("authorization") == AUTHORIZATION {
        let mut program = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", root)
            .envs([("GIT_HTTP_EXPORT_ALL", "1"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
            .envs([("REQUEST_METHOD", method), ("PATH_INFO", path), ("QUERY_STRING", query)])
            .envs([("CONTENT_TYPE", field("content-type")), ("GIT_PROTOCOL", field("git-protocol"))])
            .env("CONTENT_LENGTH", body.len().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("git http-backend");
        program.stdin.take().expect("its input").write_all(&body).await.expect("written");
        let said = program.wait_with_output().await.expect("an answer").stdout;
        let status = if said.starts_with(b"Status: ") { "404 Not Found" } else { "200 OK" };
        [format!("HTTP/1.1 {status}\r\n").as_bytes(), &said].concat()
    } else {
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\n\r\n".to_vec()
    };
    stream.write_all(&answer).await.expect("written");
}
