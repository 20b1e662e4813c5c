//! Volumes of a driver that the cluster runs: registered with the kubelet as any driver is, attached by the CSI
//! project's own attacher, and used by a pod and by drover's tasks side by side.

use anyhow::{Context as _, Result, ensure};
use drover_testkit::cargo::Profile;
use drover_testkit::image::{self, Arch};
use drover_testkit::process::Signal;
use drover_testkit::progress::Progress;
use serde_json::{Value, json};

use crate::ground::{Ground, SYSTEM, text};

/// What the driver calls itself.
const DRIVER: &str = "hostdir.csi.drover.dev";
/// Where it keeps its volumes on the node.
const DATA: &str = "/var/lib/hostdir";
const VERSIONS: usize = 20;

/// The driver with its registrar (kubelets name a socket in a way that the driver's own library refuses) and its
/// attacher in one pod of each node, the pod with the claim that uses it, and a volume of it for drover.
const MANIFEST: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: hostdir, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hostdir}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: hostdir, namespace: kube-system}]
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: DRIVER}
spec: {attachRequired: true}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: hostdir, namespace: kube-system}
spec:
  selector: {matchLabels: {app: hostdir}}
  template:
    metadata: {labels: {app: hostdir}}
    spec:
      serviceAccountName: hostdir
      terminationGracePeriodSeconds: 1
      containers:
      - name: driver
        image: drover.dev/csi-hostdir:test
        imagePullPolicy: Never
        args:
        - --data-dir=DATA
        - --node-id=n1
        - --endpoint=unix:///var/lib/kubelet/plugins/DRIVER/csi.sock
        securityContext: {privileged: true, runAsUser: 0}
        volumeMounts:
        - {name: kubelet, mountPath: /var/lib/kubelet, mountPropagation: Bidirectional}
        - {name: socket, mountPath: /var/lib/kubelet/plugins/DRIVER}
        - {name: data, mountPath: DATA}
      - name: registrar
        image: drover.dev/csi-registrar:test
        imagePullPolicy: Never
        args:
        - DRIVER
        - /var/lib/kubelet/plugins/DRIVER/csi.sock
        - /registration
        securityContext: {runAsUser: 0}
        volumeMounts:
        - {name: registration, mountPath: /registration}
      - name: attacher
        image: drover.dev/csi-attacher:test
        imagePullPolicy: Never
        args: [--csi-address=/csi/csi.sock, --v=2]
        securityContext: {runAsUser: 0}
        volumeMounts:
        - {name: socket, mountPath: /csi}
      volumes:
      - name: kubelet
        hostPath: {path: /var/lib/kubelet}
      - name: registration
        hostPath: {path: /var/lib/kubelet/plugins_registry, type: Directory}
      - name: socket
        hostPath: {path: /var/lib/kubelet/plugins/DRIVER, type: DirectoryOrCreate}
      - name: data
        hostPath: {path: DATA, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: of-a-pod}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ''
  csi: {driver: DRIVER, volumeHandle: vol-pod}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: of-a-pod, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ''
  volumeName: of-a-pod
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: beside, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  # Any program that writes where it is told to.
  - name: writer
    image: drover.dev/csi-hostdir:test
    imagePullPolicy: Never
    args: [--data-dir=/claim, --node-id=none, --endpoint=unix:///claim/sock]
    securityContext: {runAsUser: 0}
    volumeMounts: [{name: claim, mountPath: /claim}]
  volumes:
  - name: claim
    persistentVolumeClaim: {claimName: of-a-pod}
---
apiVersion: drover.dev/v1alpha1
kind: CSIVolume
metadata: {name: db, namespace: default}
spec:
  pluginID: DRIVER
  externalID: vol-db
  capabilities: [{accessMode: single-node-writer, attachmentMode: file-system}]
";

/// A job that counts on in a file, and says when it began and ended.
fn counter(version: usize) -> Value {
    let script = format!(
        "mkdir /data/lock || {{ echo two >> /data/log; exit 1; }}; touch /data/log; n=$(wc -l < /data/log); \
         trap 'rmdir /data/lock; date +%s%N >> /data/ends; exit 0' TERM; date +%s%N >> /data/starts; \
         while :; do n=$((n+1)); echo {version} $n >> /data/log; sync /data/log; sleep 0.02; done"
    );
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "ledger", "namespace": "default" },
        "spec": { "groups": [{
            "name": "db", "ephemeralDisk": { "sizeMB": 110 },
            "volumes": [{ "name": "data", "type": "csi", "source": "db", "accessMode": "single-node-writer",
                          "attachmentMode": "file-system" }],
            "update": { "minHealthyTime": "0s" },
            "tasks": [{ "name": "count", "driver": "exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
                        "user": "nobody", "killSignal": "SIGTERM", "killTimeout": "5s",
                        "volumeMounts": [{ "volume": "data", "destination": "/data" }],
                        "resources": { "cpu": 10, "memoryMB": 32 } }],
        }] },
    })
}

pub(crate) fn side_by_side(ground: &Ground) -> Result<String> {
    ground.installed()?;
    bring_images(ground)?;
    for volume in ["vol-pod", "vol-db"] {
        make_volume(ground, volume)?;
    }
    ground.apply(&MANIFEST.replace("DRIVER", DRIVER).replace("DATA", DATA))?;
    ground.kubectl(&["wait", "--for=condition=Ready", "pod/beside", "--timeout", "120s"])?;
    let before = writer(ground)?;

    for version in 0..VERSIONS {
        ground.apply(&counter(version).to_string())?;
        match version % 4 {
            1 => crash(ground, "droverd", "agent", SYSTEM, "app.kubernetes.io/component=agent")?,
            2 => crash(ground, "droverd", "controller", SYSTEM, "app.kubernetes.io/component=controller")?,
            3 => crash(ground, "csi-hostdir", "--node-id=n1", "kube-system", "app=hostdir")?,
            _ => {}
        }
        let began = format!("{version} ");
        ground.eventually(&format!("version {version} writes"), || {
            Ok(read(ground, "log")?.lines().any(|line| line.starts_with(&began)).then_some(()))
        })?;
    }
    ensure!(writer(ground)? == before, "the pod beside was touched");
    ground.kubectl(&["delete", "djob", "ledger", "--timeout", "120s"])?;
    ground.eventually("the claim is released", || {
        Ok(ground.read(&["csivol", "db"])?.pointer("/status/claims/0").is_none().then_some(()))
    })?;
    let ours = ["volumeattachments", "-l", "app.kubernetes.io/managed-by=drover"];
    ground
        .eventually("drover's VolumeAttachments are gone", || Ok(count(&ground.read(&ours)?)?.eq(&0).then_some(())))?;
    let mounts = on_node(ground, &["cat", "/proc/self/mountinfo"])?;
    ensure!(!mounts.contains("/plugins/drover.dev/"), "something is still mounted:\n{mounts}");
    let released = count(&ground.read(&["volumeattachments"])?)?;
    ensure!(released == 1, "{released} VolumeAttachments instead of that of the pod");
    ensure!(writer(ground)? == before, "the pod beside was touched");
    ground.kubectl(&["delete", "pod/beside", "pvc/of-a-pod", "pv/of-a-pod", "--timeout", "120s"])?;
    ground.eventually("no VolumeAttachment is left", || {
        Ok(count(&ground.read(&["volumeattachments"])?)?.eq(&0).then_some(()))
    })?;
    judge(ground)
}

/// Whether no record is lost, no two have written at once, and how long a version took from the end of the one before.
fn judge(ground: &Ground) -> Result<String> {
    let log = read(ground, "log")?;
    let mut last = (0, 0);
    for line in log.lines() {
        let (version, number) = line.split_once(' ').with_context(|| format!("the line {line:?}"))?;
        let now: (usize, usize) = (version.parse()?, number.parse()?);
        ensure!(now.0 >= last.0 && now.1 == last.1 + 1, "{now:?} comes after {last:?}");
        last = now;
    }
    let times = |file: &str| -> Result<Vec<f64>> {
        read(ground, file)?.lines().map(|line| Ok(line.parse::<f64>()? / 1e9)).collect()
    };
    let (starts, ends) = (times("starts")?, times("ends")?);
    ensure!((starts.len(), ends.len()) == (VERSIONS, VERSIONS), "{} starts, {} ends", starts.len(), ends.len());
    let mut gaps: Vec<f64> = starts[1..].iter().zip(&ends).map(|(start, end)| start - end).collect();
    gaps.sort_by(f64::total_cmp);
    Ok(format!(
        "{} records of {VERSIONS} versions, none lost; from the end of one to the start of the next {:.1} s (median), {:.1} s (longest)",
        last.1,
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    ))
}

/// Gives the node the images of the driver and of its attacher.
fn bring_images(ground: &Ground) -> Result<()> {
    let progress = Progress::for_people();
    let driver = image::build("csi-hostdir", "csi-hostdir", Arch::Amd64, Profile::Dev, &progress)?;
    let sidecars = drover_testkit::csi_sidecars::find_or_build(&progress)?;
    let sidecars = ["csi-attacher", "csi-registrar"].map(|name| (name, sidecars.join(name)));
    for (name, program) in [("csi-hostdir", driver)].into_iter().chain(sidecars) {
        let file = tempfile::NamedTempFile::new().context("a file for an image")?;
        image::archive_of(&format!("drover.dev/{name}:test"), name, &program, file.path())?;
        ground.cluster.load(file.path())?;
    }
    Ok(())
}

/// Makes a volume at the provider, as somebody else than drover would.
fn make_volume(ground: &Ground, id: &str) -> Result<()> {
    let known = json!({ "id": id, "name": id, "capacity": 1 << 30, "source": null });
    let script = format!(
        "mkdir -p {DATA}/volumes/{id}/attached && mkdir -m 777 {DATA}/volumes/{id}/data && echo '{known}' > {DATA}/volumes/{id}/volume.json"
    );
    on_node(ground, &["sh", "-c", &script]).map(drop)
}

/// A file that the job's tasks have written.
fn read(ground: &Ground, file: &str) -> Result<String> {
    let path = format!("{DATA}/volumes/vol-db/data/{file}");
    on_node(ground, &["sh", "-c", &format!("test ! -e {path} || cat {path}")])
}

fn on_node(ground: &Ground, args: &[&str]) -> Result<String> {
    let output = ground.cluster.on_node("n1", args)?;
    ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Which life of the pod beside it is.
fn writer(ground: &Ground) -> Result<(String, i64)> {
    let pod = ground.read(&["pod", "beside"])?;
    let status = &pod["status"]["containerStatuses"][0];
    ensure!(status["ready"] == true, "the pod beside is not ready: {status}");
    Ok((text(status, "/containerID").to_owned(), status["restartCount"].as_i64().unwrap_or_default()))
}

/// Kills processes, and has new pods come at once: one that was killed often would be started later and later.
fn crash(ground: &Ground, program: &str, argument: &str, namespace: &str, pods: &str) -> Result<()> {
    let processes = ground.programs(program, |args| args.iter().any(|arg| arg == argument))?;
    ensure!(!processes.is_empty(), "no {program} {argument} runs");
    for process in processes {
        process.signal(Signal::KILL).context("killing it")?;
    }
    ground
        .kubectl(&["delete", "pod", "-n", namespace, "-l", pods, "--force", "--grace-period=0", "--wait=false"])
        .map(drop)
}

fn count(list: &Value) -> Result<usize> {
    Ok(list["items"].as_array().context("a list")?.len())
}
