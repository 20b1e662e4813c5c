job "every" {
  name        = "Every stanza"
  type        = "batch"
  priority    = 40
  namespace   = "default"
  datacenters = ["*"]
  all_at_once = true

  meta {
    a = "b"
  }

  constraint {
    attribute = "${meta.rack}"
    operator  = "distinct_property"
    value     = "2"
  }

  constraint {
    attribute = "${attr.os.version}"
    operator  = "version"
    value     = ">= 11"
  }

  constraint {
    attribute = "${meta.tags}"
    operator  = "set_contains_any"
    value     = "a,b"
  }

  constraint {
    attribute = "${meta.x}"
    operator  = "is_set"
  }

  affinity {
    attribute = "${node.class}"
    operator  = "!="
    value     = "slow"
    weight    = -30
  }

  affinity {
    attribute = "${meta.tags}"
    operator  = "set_contains"
    value     = "a,b"
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

  group "g" {
    count                        = 1
    max_client_disconnect        = "1h"
    stop_after_client_disconnect = "1m"
    prevent_reschedule_on_lost   = true
    max_run_duration             = "1h"

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

    restart {
      attempts         = 1
      interval         = "1m"
      delay            = "1s"
      mode             = "delay"
      render_templates = true
    }

    disconnect {
      lost_after           = "1h"
      stop_on_client_after = "1m"
    }

    ephemeral_disk {
      size    = 100
      sticky  = true
      migrate = true
    }

    network {
      mode     = "bridge"
      hostname = "h"
      mbits    = 10

      port "p" {
        static           = 8080
        to               = 80
        ignore_collision = true
      }

      dns {
        servers  = ["10.0.0.1"]
        searches = ["a"]
        options  = ["ndots:2"]
      }

      cni {
        args {
          a = "b"
        }
      }
    }

    service {
      name         = "s"
      port         = "p"
      address_mode = "host"
      address      = "10.0.0.1"
      canary_tags  = ["c"]
      task         = "t"

      meta {
        a = "b"
      }

      check {
        name            = "up"
        type            = "http"
        interval        = "1s"
        timeout         = "1s"
        path            = "/"
        method          = "POST"
        body            = "ping"
        protocol        = "https"
        tls_skip_verify = true
        port            = "p"
        address_mode    = "host"
        on_update       = "ignore"

        check_restart {
          limit           = 2
          ignore_warnings = true
        }
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

    scaling {
      min = 1
      max = 5

      policy {
        cooldown = "1m"
      }
    }

    task "t" {
      driver         = "exec"
      leader         = true
      kill_signal    = "SIGINT"
      shutdown_delay = "1s"

      config {
        command = "/bin/true"
      }

      meta {
        a = "b"
      }

      resources {
        cores   = 2
        memory  = 64
        secrets = 2

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

        numa {
          affinity = "prefer"
        }
      }

      logs {
        disabled = true
      }

      volume_mount {
        volume           = "v"
        destination      = "/v"
        read_only        = true
        propagation_mode = "host-to-task"
        selinux_label    = "Z"
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
          fail_on_error       = true
          run_on_first_render = true
        }

        wait {
          min = "1s"
          max = "2s"
        }
      }

      artifact {
        source = "https://example.com/x"
        mode   = "file"
        chown  = true

        headers {
          Accept = "*/*"
        }
      }

      affinity {
        attribute = "${attr.cpu.arch}"
        value     = "amd64"
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

        extra_claims {
          a = "b"
        }
      }

      identity {
        name = "default"
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

        extra_claims {
          team = "shop"
        }
      }

      action "dump" {
        command = "/bin/dump"
        args    = ["-x"]
      }
    }
  }
}
