package escape

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// rig is the test environment: a driver with the attacker's box, another session's box, and
// things on the host to attack: files with canaries, listeners, processes.
type rig struct {
	*testing.T
	cfg    Config
	driver sandbox.Driver
	data   string
	spec   sandbox.Spec
	info   sandbox.Info
	box    *sandbox.Box
	// other is the box of the other session.
	other *sandbox.Box
	// names has the values that replace {name} in the arguments of attempts.
	names map[string]string
	// knocks counts connections to the listeners of the host.
	knocks *atomic.Int64
	// siblings is the shared box for the attempts of one session on another. top is the test of the whole run.
	siblings *pair
	// roots is the box whose workspace belongs to the user root; the attempts root-* run in it.
	roots *rootBox
	top   *testing.T
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := &rig{T: t, cfg: cfg, names: map[string]string{}, knocks: &atomic.Int64{}, siblings: &pair{}, roots: &rootBox{}, top: t}
	// These variables stay set, so that the test may run in parallel with others: no box may see them anyway.
	for _, name := range []string{"HOLDFAST_ESCAPE_TOKEN", "AWS_SECRET_ACCESS_KEY", "ESCAPE_API_KEY"} {
		if err := os.Setenv(name, canary+"environment"); err != nil {
			t.Fatal(err)
		}
	}
	r.driver, r.data = cfg.New(t)
	r.spec, r.info, r.box = r.up("attacker")
	r.install(r.box)
	r.names["boxd"], r.names["boxd-socket"] = strconv.Itoa(r.info.PID), r.socket()
	r.others()
	r.hostFiles()
	r.listeners()
	return r
}

// socket returns the path of the socket on which the box listens for the server. Only one box may exist then.
func (r *rig) socket() string {
	r.Helper()
	var found []string
	err := filepath.WalkDir(r.data, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) != 1 {
		r.Fatal(found, err)
	}
	return found[0]
}

var tokens atomic.Uint64

// up starts a box with that name and connects to it.
func (r *rig) up(name string, change ...func(*sandbox.Spec)) (sandbox.Spec, sandbox.Info, *sandbox.Box) {
	r.Helper()
	spec := r.cfg.Spec(r.T, r.driver, name)
	for _, c := range change {
		c(&spec)
	}
	minute := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	}
	ctx, cancel := minute()
	defer cancel()
	r.Cleanup(func() {
		ctx, cancel := minute()
		defer cancel()
		if err := r.driver.Remove(ctx, spec.Box); err != nil {
			r.Error(err)
		}
	})
	info, err := r.driver.Ensure(ctx, spec)
	if err != nil {
		r.Fatalf("%v (hint: %s)", err, holdfast.HintOf(err))
	}
	return spec, info, r.dial(spec.Box)
}

// dial connects to a box. Connections that the box's listeners accept get the same answer as
// those to the host's listeners.
func (r *rig) dial(box holdfast.BoxID) *sandbox.Box {
	r.Helper()
	conn, err := r.driver.Connect(r.Context(), box)
	if err != nil {
		r.Fatal(err)
	}
	b, err := sandbox.Dial(r.Context(), box, conn, tokens.Add(1), func(_ holdfast.SessionID, _ string, c net.Conn) {
		_, _ = c.Write([]byte(canary + "network"))
		_ = c.Close()
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = b.Close() })
	return b
}

func (r *rig) file(path, content string) string {
	r.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		r.Fatal(err)
	}
	return path
}

// others starts the box of another session. It has a file, a process with the file's content in its
// memory, environment, open files and working directory, and connections to a model and a network.
func (r *rig) others() {
	r.Helper()
	spec, _, b := r.up("other")
	r.other = b
	call := r.call()
	if _, err := b.Write(r.Context(), call, wire.WriteRequest{Path: "secret"}, []byte(canary+"other")); err != nil {
		r.Fatal(err)
	}
	b.Release(call.ID)
	r.install(b)
	r.other = b
	for _, l := range []wire.ListenRequest{
		{Name: "model", Network: "unix", Address: "/run/holdfast/model.sock"}, {Name: "proxy", Network: "tcp", Address: "127.0.0.1:3128"},
	} {
		if _, err := b.Listen(r.Context(), l); err != nil {
			r.Fatal(err)
		}
	}
	started, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		defer close(done)
		_, _ = b.Exec(ctx, r.call(), wire.ExecRequest{
			Argv: []string{"/workspace/probe", "victim", "/workspace/secret"}, Env: []string{"ESCAPE_SECRET=" + canary + "other"},
		}, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
	}()
	r.Cleanup(func() { cancel(); <-done })
	select {
	case <-started:
	case <-done:
		r.Fatal("the other session's process did not start")
	}
	r.names["other"] = filepath.Join(workspace(spec), "secret")
	r.names["other-dir"] = spec.Dir
}

// hostFiles creates files with canaries, like those on a server's machine.
func (r *rig) hostFiles() {
	r.Helper()
	r.names["host"] = r.file(filepath.Join(r.cfg.Outside, "secret"), canary+"host")
	r.names["key"] = r.file(filepath.Join(r.cfg.Outside, ".ssh", "id_ed25519"), canary+"key")
	r.names["token"] = r.file(filepath.Join(r.data, "token"), canary+"token")
	r.names["db"] = r.file(filepath.Join(r.data, "holdfast.db"), canary+"database")
	r.names["data"], r.names["outside"] = r.data, r.cfg.Outside
	r.names["pid"] = strconv.Itoa(os.Getpid())
	// Make a directory with the same paths as the host's root, for controls that change files in it.
	root := filepath.Join(r.cfg.Outside, "root")
	for _, dir := range []string{"workspace", "usr/bin", "etc", "run/holdfast", "dev", "home"} {
		r.file(filepath.Join(root, dir, "env"), "")
	}
	r.names["root"] = root
}

// listeners starts services on the host. They answer with a canary and count the connections.
func (r *rig) listeners() {
	r.Helper()
	abstract := fmt.Sprintf("@escape-%d", os.Getpid())
	path := filepath.Join(r.cfg.Outside, "sock")
	for name, at := range map[string][2]string{
		"tcp": {"tcp4", "127.0.0.1:0"}, "tcp6": {"tcp6", "[::1]:0"}, "abstract": {"unix", abstract}, "unix": {"unix", path},
	} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { _ = l.Close() })
		r.names[name] = l.Addr().String()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				r.knocks.Add(1)
				_, _ = c.Write([]byte(canary + "network"))
				_ = c.Close()
			}
		}()
	}
	if err := os.Chmod(path, 0o777); err != nil {
		r.Fatal(err)
	}
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = u.Close() })
	r.names["udp"] = u.LocalAddr().String()
	go func() {
		buf := make([]byte, 512)
		for {
			_, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			r.knocks.Add(1)
			_, _ = u.WriteTo([]byte(canary+"network"), from)
		}
	}()
}

func (r *rig) fill(s string) string {
	for name, v := range r.names {
		s = strings.ReplaceAll(s, "{"+name+"}", v)
	}
	return s
}

// pattern replaces each {name} in a regular expression by a regular expression that matches its value literally.
func (r *rig) pattern(s string) string {
	for name, v := range r.names {
		s = strings.ReplaceAll(s, "{"+name+"}", regexp.QuoteMeta(v))
	}
	return s
}

func (r *rig) fillAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = r.fill(s)
	}
	return out
}

// without runs the control of an attempt, that is the attempt without the box's protection, and returns what it
// printed.
func (r *rig) without(a attempt) string {
	r.Helper()
	if a.control == asRoot && os.Geteuid() != 0 {
		return needsRoot
	}
	args, sh := a.args, a.sh
	if a.free != nil {
		args = a.free
		if sh != "" {
			sh, args = a.free[0], nil
		}
	}
	knocks := r.knocks.Load()
	if knocks > 0 && a.control == onHost && strings.HasPrefix(a.id, "net-") {
		r.Errorf("the box connected to a listener of the host %d times", knocks)
	}
	defer func() { r.knocks.Store(0) }()
	if strings.Contains(strings.Join(args, " "), "{victim}") {
		defer r.victim()()
	}
	args = r.fillAll(args)
	var saw string
	if a.control == inOther {
		saw = r.exec(r.other, wire.ExecRequest{Argv: append([]string{"/workspace/probe"}, args...), Merge: true})
	} else {
		saw = r.host(a.control, args, r.fill(sh))
	}
	sees := a.sees
	if sees == "" {
		sees = "ok.*"
		if sh != "" {
			sees = "exit 0.*"
		}
	}
	if a.lacks != "" && matches(a.lacks, saw) {
		return "no control: " + saw + ", " + a.why
	}
	if !matches(r.pattern(sees), saw) {
		r.Errorf("the control failed, so the attempt proves nothing: it printed %q, not %q", saw, sees)
	}
	return r.short(saw)
}

// needsRoot is the result for a control that needs root, in a Run that is not root. Controls runs it later.
const needsRoot = "takes the host's root"

// host runs the probe or a script at the place at, where the control runs, as the server's user
// unless at names another user.
func (r *rig) host(at where, args []string, sh string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.cfg.Probe, args...)
	if sh != "" {
		cmd = exec.CommandContext(ctx, "/bin/bash", "-c", sh)
	}
	cmd.Dir = r.cfg.Outside
	switch {
	case at == inNamespaces:
		cmd.SysProcAttr = namespaced()
	case at == asUser && os.Geteuid() == 0:
		cmd.SysProcAttr = ordinary()
	}
	cmd.WaitDelay = 5 * time.Second
	out := &lastLine{}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if sh != "" {
		return strings.TrimSpace(fmt.Sprintf("exit %d %s", cmd.ProcessState.ExitCode(), out))
	}
	if err != nil {
		return strings.TrimSpace(fmt.Sprintf("%v %s", err, out))
	}
	return out.String()
}

// victim starts a process on the host that holds a secret, for controls to attack. It returns a
// function that ends the process.
func (r *rig) victim() func() {
	r.Helper()
	cmd := exec.Command(r.cfg.Probe, "victim", r.names["host"])
	cmd.Env = []string{"ESCAPE_SECRET=" + canary + "other", "HOLDFAST_ESCAPE_TOKEN=" + canary + "environment"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	var pid int
	var at uint64
	if _, err := fmt.Fscanf(out, "ready %d %d\n", &pid, &at); err != nil {
		r.Fatal(err)
	}
	r.names["victim"], r.names["at"] = strconv.Itoa(pid), strconv.FormatUint(at, 10)
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// brief removes from an output the parts that differ from run to run and from machine to
// machine.
func (r *rig) brief(saw string) string {
	for _, dir := range []string{r.data, r.cfg.Outside} {
		saw = strings.ReplaceAll(saw, dir, "…")
	}
	for _, name := range []string{"tcp", "tcp6", "udp"} {
		if _, port, err := net.SplitHostPort(r.names[name]); err == nil {
			saw = strings.ReplaceAll(saw, port, "N")
		}
	}
	if len(saw) > 160 {
		saw = strings.ToValidUTF8(saw[:160], "") + "…"
	}
	return saw
}

// short shortens an outcome to what is the same on every machine: how its line begins, and the
// secret, if one was found.
func (r *rig) short(saw string) string {
	saw = r.brief(saw)
	if at := strings.Index(saw, canary); at >= 0 {
		found, _, _ := strings.Cut(saw[at:], " ")
		first, _, _ := strings.Cut(saw, " ")
		if strings.HasPrefix(saw, "exit 0 ") {
			first = "exit 0"
		}
		return first + " " + strings.TrimRight(found, "…")
	}
	if len(saw) > 40 {
		first, _, _ := strings.Cut(saw, " ")
		return first + " …"
	}
	return saw
}
