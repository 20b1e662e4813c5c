// Serves Kubernetes' own CSI mock driver, which keeps its volumes in memory, on CSI_ENDPOINT.
//
// Usage: csi-mock NODE_ID CALLS FAULTS
//
// CALLS gets a line for each call and its answer. FAULTS is read before each call: a line "CALL CODE" (as "NodeStageVolume 14") makes one
// call fail with that gRPC code, and is struck out; with "after" behind it the call is carried out all the same.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

type interceptor struct {
	sync.Mutex
	calls, faults string
}

func (i *interceptor) call(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	name := path.Base(info.FullMethod)
	code, isAfter := i.fault(name)
	if code != codes.OK && !isAfter {
		i.note(name, code)
		return nil, status.Error(code, "the test wants it")
	}
	answer, err := handler(ctx, request)
	if code != codes.OK {
		answer, err = nil, status.Error(code, "the test wants it, after the call was carried out")
	}
	i.note(name, status.Code(err))
	return answer, err
}

// fault strikes out the first line that is about the call.
func (i *interceptor) fault(name string) (codes.Code, bool) {
	i.Lock()
	defer i.Unlock()
	text, err := os.ReadFile(i.faults)
	if err != nil {
		return codes.OK, false
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for n, line := range lines {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != name {
			continue
		}
		code, err := strconv.ParseUint(words[1], 10, 32)
		if err != nil {
			log.Fatalf("%s: %q is no gRPC code", i.faults, words[1])
		}
		rest := strings.Join(slices.Delete(lines, n, n+1), "\n")
		if err := os.WriteFile(i.faults, []byte(rest), 0o644); err != nil {
			log.Fatal(err)
		}
		return codes.Code(code), len(words) > 2
	}
	return codes.OK, false
}

func (i *interceptor) note(name string, code codes.Code) {
	i.Lock()
	defer i.Unlock()
	file, err := os.OpenFile(i.calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	answer := "ok"
	if code != codes.OK {
		answer = code.String()
	}
	fmt.Fprintln(file, name, answer)
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: csi-mock NODE_ID CALLS FAULTS")
	}
	socket := strings.TrimPrefix(os.Getenv("CSI_ENDPOINT"), "unix://")
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	mock := service.New(service.Config{DriverName: os.Args[1], PermissiveTargetPath: true, NodeExpansionRequired: true, AttachLimit: 2})
	between := &interceptor{calls: os.Args[2], faults: os.Args[3]}
	server := grpc.NewServer(grpc.UnaryInterceptor(between.call))
	csi.RegisterIdentityServer(server, mock)
	csi.RegisterControllerServer(server, mock)
	csi.RegisterNodeServer(server, mock)
	log.Fatal(server.Serve(listener))
}
