package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// gone says whether an error is that there is no such volume.
func gone(err error) bool {
	refused, is := err.(api.UnexpectedResponseError)
	return is && refused.StatusCode() == http.StatusNotFound
}

// volumes does what Terraform's provider does with its two resources: it waits for the plugin, makes a volume and a
// snapshot of it, registers it under another id where it is, reads both back, changes one, and takes them away.
func volumes(client *api.Client) {
	plugin := strings.TrimSpace(source())
	wait("plugin", func(options *api.QueryOptions) (bool, *api.QueryMeta, error) {
		found, meta, err := client.CSIPlugins().Info(plugin, options)
		return err == nil && found.ControllersHealthy > 0, meta, err
	})
	volume := &api.CSIVolume{ID: "made", Name: "made", PluginID: plugin, RequestedCapacityMin: 1 << 20,
		RequestedCapabilities: []*api.CSIVolumeCapability{{
			AccessMode:     api.CSIVolumeAccessModeSingleNodeWriter,
			AttachmentMode: api.CSIVolumeAttachmentModeFilesystem,
		}}}
	answer, _, err := client.CSIVolumes().CreateOpts(&api.CSIVolumeCreateRequest{Volumes: []*api.CSIVolume{volume}}, nil)
	must("create", err)
	check("made", len(answer.Volumes) == 1 && answer.Volumes[0].ExternalID != "", answer)
	made := answer.Volumes[0].ExternalID
	read := func(id string) *api.CSIVolume {
		var volume *api.CSIVolume
		wait("schedulable", func(options *api.QueryOptions) (bool, *api.QueryMeta, error) {
			found, meta, err := client.CSIVolumes().Info(id, options)
			volume = found
			return err == nil && found.Schedulable, meta, err
		})
		return volume
	}
	first := read("made")
	check("external id", first.ExternalID == made && first.Capacity >= 1<<20, first)

	taken, _, err := client.CSIVolumes().CreateSnapshot(&api.CSISnapshot{SourceVolumeID: "made", Name: "nightly"}, nil)
	must("snapshot", err)
	check("snapshot", len(taken.Snapshots) == 1 && taken.Snapshots[0].ExternalSourceVolumeID == made, taken)
	listed, _, err := client.CSIVolumes().ListSnapshotsOpts(&api.CSISnapshotListRequest{PluginID: plugin})
	must("snapshots", err)
	check("snapshots", len(listed.Snapshots) == 1 && listed.Snapshots[0].ID == taken.Snapshots[0].ID, listed)
	must("delete snapshot", client.CSIVolumes().DeleteSnapshot(taken.Snapshots[0], nil))

	// What was read is registered again, and a change of it.
	_, err = client.CSIVolumes().Register(first, nil)
	must("register", err)
	first.MountOptions = &api.CSIMountOptions{FSType: "ext4"}
	_, err = client.CSIVolumes().Register(first, nil)
	must("register", err)
	second := read("made")
	check("change", second.MountOptions != nil && second.MountOptions.FSType == "ext4", second)
	other := *second
	other.PluginID = "other"
	_, err = client.CSIVolumes().Register(&other, nil)
	check("another plugin", err != nil, err)

	must("delete", client.CSIVolumes().DeleteOpts(&api.CSIVolumeDeleteRequest{ExternalVolumeID: "made"}, nil))
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, _, err = client.CSIVolumes().Info("made", nil)
		if gone(err) {
			break
		}
		check("the volume is gone", time.Since(begun) < patience, err)
	}
	fmt.Println("complete")
}
