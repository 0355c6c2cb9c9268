package checks

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/sandbox"
)

// TestDoctorChecks: each thing that is missing is named with what to type.
func TestDoctorChecks(t *testing.T) {
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed")
	open := filepath.Join(dir, "it's open")
	for name, mode := range map[string]os.FileMode{closed: 0o700, open: 0o755} {
		if err := os.Mkdir(name, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(name, "token"), []byte("hf_short\n"), mode&^0o111); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	files := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	noCgroup := []sandbox.Probe{{Capabilities: []sandbox.Capability{{Name: "cgroup-leaves", Detail: "permission denied"}}}}
	for what, c := range map[string]struct {
		got       Check
		ok        bool
		want, fix string
	}{
		"data":            {checkData(closed), true, "closed to others", ""},
		"data to come":    {checkData(filepath.Join(dir, "a", "b")), true, "will be made", ""},
		"data open":       {checkData(open), false, "0755", `chmod 700 '` + dir + `/it'\''s open'`},
		"data is a file":  {checkData(filepath.Join(closed, "token")), false, "not a directory", "--data DIR"},
		"token to come":   {checkToken(dir), true, "will be made", ""},
		"token open":      {checkToken(open), false, "can access the owner token", "chmod 600 "},
		"token broken":    {checkToken(closed), false, "token", "rm "},
		"space":           {checkSpace("/proc/self"), false, "", "--data DIR"},
		"socket":          {checkSocket("/var/lib/holdfast"), true, "of 107 bytes", ""},
		"socket too long": {checkSocket("/" + strings.Repeat("long/", 20)), false, "107 are allowed", "--data SHORTER"},
		"port in use":     {checkAddress(ln.Addr().String(), "127.0.0.1:1"), false, "in use", "--listen 127.0.0.1:0"},
		"our port":        {checkAddress(ln.Addr().String(), ln.Addr().String()), true, "used by the running server", ""},
		"port":            {checkAddress("127.0.0.1:0", ""), true, "free", ""},
		"foreign address": {checkAddress("192.0.2.1:80", ""), false, "", "--listen"},
		"namespaces":      {checkUserNamespaces(files("/proc/sys/user/max_user_namespaces", "100")), true, "allowed", ""},
		"no namespaces":   {checkUserNamespaces(files("/proc/sys/user/max_user_namespaces", "0")), false, "max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces="},
		"limits":          {checkCgroups(sandbox.LimitsRequired, nil, files("/sys/fs/cgroup/cgroup.controllers", "cpu"), 1), true, "cgroup v2", ""},
		"no delegation":   {checkCgroups(sandbox.LimitsRequired, noCgroup, files("/sys/fs/cgroup/cgroup.controllers", "cpu"), 1), false, "permission denied", "Delegate=yes"},
		"no v1 for users": {checkCgroups(sandbox.LimitsRequired, noCgroup, files(), 1), false, "cgroup v1", "limits.mode=best-effort"},
		"waived on v1":    {checkCgroups(sandbox.LimitsBestEffort, noCgroup, files(), 1), false, "cgroup v1", "run the server as root"},
		"isolated":        {checkUntrusted("local", []sandbox.Probe{{Driver: "host"}, {Driver: "local", Isolates: true}}), true, "driver local", ""},
		"not isolated":    {checkUntrusted("host", []sandbox.Probe{{Driver: "host", Usable: true}}), false, "are refused", "--driver local"},
	} {
		if c.got.OK != c.ok || !strings.Contains(c.got.Detail, c.want) || !strings.Contains(c.got.Fix, c.fix) || (c.got.Fix == "") != c.ok {
			t.Errorf("%s: %+v", what, c.got)
		}
	}
	cfg := config.Defaults()
	cfg.Data, cfg.Listen = closed, "127.0.0.1:0"
	if all := Around(cfg, nil, ""); len(all) < 5 {
		t.Errorf("%+v", all)
	}
}

// TestReaches: which addresses lead to a server by what it listens on.
func TestReaches(t *testing.T) {
	for _, c := range []struct {
		listen, address string
		want            bool
	}{
		{"127.0.0.1:4100", "127.0.0.1:4100", true},
		{"127.0.0.1:4100", "localhost:4100", true},
		{"localhost:4100", "[::1]:4100", true},
		{":4100", "127.0.0.1:4100", true},
		{"0.0.0.0:4100", "example.com:4100", true},
		{"127.0.0.1:4100", "127.0.0.1:4101", false},
		{"127.0.0.1:4100", "example.com:4100", false},
		{"localhost:4100", "example.com:4100", false},
		{"192.0.2.1:4100", "localhost:4100", false},
		{"127.0.0.1:4100", "", false},
		{"4100", "127.0.0.1:4100", false},
	} {
		if got := reaches(c.listen, c.address); got != c.want {
			t.Errorf("%s by %s: %v", c.listen, c.address, got)
		}
	}
}

// TestHZ8_RootTreesAreTold: where directories of root are allowed, doctor says what that means and whether it works.
func TestHZ8_RootTreesAreTold(t *testing.T) {
	with := func(ok bool) []sandbox.Probe {
		return []sandbox.Probe{{}, {Capabilities: []sandbox.Capability{{Name: "root-trees", OK: ok, Detail: "no idmapped mounts", Fix: "another disk"}}}}
	}
	if c, said := checkRootTrees(false, with(true), 0); said {
		t.Errorf("not allowed: %+v", c)
	}
	for name, c := range map[string]struct {
		probes    []sandbox.Probe
		uid       int
		ok        bool
		want, fix string
	}{
		"works":            {with(true), 0, true, "an agent may have written", ""},
		"does not work":    {with(false), 0, false, "no idmapped mounts", "another disk"},
		"no such driver":   {nil, 0, false, "no driver", "--driver local"},
		"an ordinary user": {with(false), 1000, true, "no effect", ""},
	} {
		got, said := checkRootTrees(true, c.probes, c.uid)
		if !said || got.OK != c.ok || !strings.Contains(got.Detail, c.want) || !strings.Contains(got.Fix, c.fix) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
