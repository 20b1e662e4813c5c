// Registers a CSI driver with the kubelet, as the CSI project's node-driver-registrar does, whose module the Go proxy does not give.
//
// Usage: csi-registrar NAME ENDPOINT FOLDER
package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatalf("the kubelet does not take %s: %s", r.name, status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: csi-registrar NAME ENDPOINT FOLDER")
	}
	path := filepath.Join(os.Args[3], os.Args[1]+"-reg.sock")
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{name: os.Args[1], endpoint: os.Args[2]})
	log.Fatal(server.Serve(listener))
}
