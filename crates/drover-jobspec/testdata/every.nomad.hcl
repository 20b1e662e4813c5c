# Every stanza and attribute that is carried over, once.
job "every" {
  name        = "Every stanza"
  type        = "batch"
  priority    = 40
  region      = "global"
  namespace   = "default"
  datacenters = ["*"]
  node_pool   = "default"
  all_at_once = true
  meta {
    a = "b"
  }
  affinity {
    attribute = "${node.class}"
    operator  = "!="
    value     = "slow"
    weight    = -30
  }
  affinity {
    attribute    = "${meta.tags}"
    set_contains = "a,b"
  }
  constraint {
    distinct_property = "${meta.rack}"
    value             = "2"
  }
  constraint {
    attribute = "${attr.os.version}"
    version   = ">= 11"
  }
  constraint {
    attribute        = "${meta.tags}"
    set_contains_any = "a,b"
  }
  constraint {
    attribute = "${meta.x}"
    operator  = "is_set"
  }
  parameterized {
    payload       = "required"
    meta_required = ["input"]
    meta_optional = ["mode"]
  }
  multiregion {
    strategy {
      max_parallel = 1
      on_failure   = "fail_all"
    }
    region "west" {
      count       = 2
      datacenters = ["w1"]
      node_pool   = "p"
      meta {
        r = "w"
      }
    }
  }
  migrate {
    max_parallel     = 2
    health_check     = "task_states"
    min_healthy_time = "1s"
    healthy_deadline = "1m"
  }
  reschedule {
    attempts       = 2
    interval       = "1h"
    delay          = "5s"
    delay_function = "constant"
    max_delay      = "1m"
    unlimited      = false
  }
  update {
    max_parallel      = 1
    health_check      = "checks"
    min_healthy_time  = "1s"
    healthy_deadline  = "1m"
    progress_deadline = "2m"
    auto_revert       = true
    auto_promote      = true
    canary            = 1
    stagger           = "30s"
  }
  group "g" {
    count                        = 1
    max_client_disconnect        = "1h"
    stop_after_client_disconnect = "1m"
    prevent_reschedule_on_lost   = true
    max_run_duration             = "1h"
    disconnect {
      lost_after           = "1h"
      replace              = true
      reconcile            = "best_score"
      stop_on_client_after = "1m"
    }
    ephemeral_disk {
      size    = 100
      sticky  = true
      migrate = true
    }
    scaling {
      min     = 1
      max     = 5
      enabled = true
      policy {
        cooldown = "1m"
      }
    }
    restart {
      attempts         = 1
      interval         = "1m"
      delay            = "1s"
      mode             = "delay"
      render_templates = true
    }
    network {
      mode     = "bridge"
      hostname = "h"
      mbits    = 10
      port "p" {
        static           = 8080
        to               = 80
        host_network     = "default"
        ignore_collision = true
      }
      dns {
        servers  = ["10.0.0.1"]
        searches = ["a"]
        options  = ["ndots:2"]
      }
      cni {
        args = { a = "b" }
      }
    }
    volume "v" {
      type      = "host"
      source    = "certs"
      read_only = true
      sticky    = true
      mount_options {
        fs_type     = "ext4"
        mount_flags = ["ro"]
      }
    }
    service {
      name         = "s"
      port         = "p"
      address_mode = "host"
      address      = "10.0.0.1"
      canary_tags  = ["c"]
      task         = "t"
      on_update    = "ignore"
      meta {
        a = "b"
      }
      check_restart {
        limit           = 2
        ignore_warnings = true
      }
      check {
        name            = "up"
        type            = "http"
        method          = "POST"
        body            = "ping"
        protocol        = "https"
        tls_skip_verify = true
        port            = "p"
        address_mode    = "host"
        path            = "/"
        interval        = 1000000000
        timeout         = "1s"
      }
    }
    task "t" {
      driver         = "exec"
      leader         = true
      kill_signal    = "SIGINT"
      shutdown_delay = "1s"
      meta {
        a = "b"
      }
      config {
        command = "/bin/true"
      }
      restart {
        attempts = 0
      }
      dispatch_payload {
        file = "in"
      }
      csi_plugin {
        id                     = "p"
        type                   = "node"
        mount_dir              = "/csi"
        stage_publish_base_dir = "/stage"
        health_timeout         = "30s"
      }
      identity {
        name          = "aws"
        aud           = ["sts"]
        env           = true
        file          = true
        filepath      = "secrets/t"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        ttl           = "1h"
        extra_claims = {
          a = "b"
        }
      }
      action "dump" {
        command = "/bin/dump"
        args    = ["-x"]
      }
      affinity {
        attribute = "${attr.cpu.arch}"
        value     = "amd64"
      }
      logs {
        enabled = false
      }
      resources {
        cores   = 2
        memory  = 64
        secrets = 2
        numa {
          affinity = "prefer"
        }
        device "gpu" {
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "2 GiB"
          }
          affinity {
            attribute = "${device.model}"
            value     = "a100"
          }
        }
      }
      identity {
        env  = true
        file = true
      }
      identity {
        name          = "vault"
        aud           = ["vault.io"]
        filepath      = "local/vault.jwt"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        ttl           = "1h"
        extra_claims  = { team = "shop" }
      }
      template {
        source               = "local/in"
        destination          = "local/out"
        change_mode          = "script"
        splay                = "1s"
        perms                = "600"
        uid                  = 1
        gid                  = 2
        env                  = true
        once                 = true
        error_on_missing_key = true
        change_script {
          command             = "/bin/reload"
          args                = ["-f"]
          timeout             = "5s"
          fail_on_error       = true
          run_on_first_render = true
        }
        wait {
          min = "1s"
          max = "2s"
        }
      }
      artifact {
        source  = "https://example.com/x"
        mode    = "file"
        chown   = true
        headers = { Accept = "*/*" }
      }
      volume_mount {
        volume           = "v"
        destination      = "/v"
        read_only        = true
        propagation_mode = "host-to-task"
        selinux_label    = "Z"
      }
    }
  }
}
