// Package sandboxtest is a test suite for the contract of sandbox.Driver: a driver is correct
// if Run passes.
//
// It tests the behaviour that all drivers have in common: starting and stopping boxes, the hello
// and its fencing tokens, calls that act once, files, freezing, adoption by the next server, and
// for drivers that isolate, what a box must not be able to access. Only tests of drivers import
// it. Invariant: a case tests behaviour that sandbox.Driver or the wire protocol promises, never
// how a driver implements it.
package sandboxtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Config says how to make the driver under test, and which features it has.
type Config struct {
	// New makes a driver with a new data directory. It is called once for each case.
	New func(t *testing.T) sandbox.Driver
	// Again makes a second instance of the driver with the same data directory, as the next
	// server would. Required.
	Again func(t *testing.T, d sandbox.Driver) sandbox.Driver
	// Spec returns the spec of a box whose id and directories are derived from name. The same
	// name gives the same box.
	Spec func(t *testing.T, d sandbox.Driver, name string) sandbox.Spec
	// Kill kills the boxd of a box. If the field is nil, cases send SIGKILL to Info.PID.
	Kill func(t *testing.T, d sandbox.Driver, box holdfast.BoxID)

	// Isolates is true if the driver isolates its boxes: then the isolation cases run.
	Isolates bool
	// RealPrograms is true if boxes run the programs of a real system (bash, ls, /proc).
	RealPrograms bool
	// Terminals is true if boxes support an exec with PTY.
	Terminals bool
	// FixedPaths is true if every box has the paths /workspace, /home/agent and /tmp.
	FixedPaths bool

	// Wait is how long a case waits for a condition before it fails; 0 means 30 s.
	Wait time.Duration
}

// testCase is the test of one promise of the contract.
type testCase struct {
	name string
	// needs returns why the driver need not pass the case; empty if it must.
	needs func(Config, sandbox.Driver) string
	run   func(*fixture)
}

// Run runs every case, each with a new driver.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.Wait == 0 {
		cfg.Wait = 30 * time.Second
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			d := cfg.New(t)
			if c.needs != nil {
				if why := c.needs(cfg, d); why != "" {
					t.Skip(why)
				}
			}
			f := &fixture{T: t, cfg: cfg, d: d}
			f.ctx, f.cancel = context.WithTimeout(t.Context(), 2*cfg.Wait)
			defer f.cancel()
			defer f.clean()
			c.run(f)
		})
	}
}

// Names lists the names of the cases.
func Names() []string {
	var out []string
	for _, c := range cases() {
		out = append(out, c.name)
	}
	return out
}

func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{
		lifeCases(), adoptCases(), helloCases(), execCases(), streamCases(), lineCases(), proxyCases(), ledgerCases(),
		memberCases(), sharedCases(), fileCases(), aliveCases(), freezeCases(), isolationCases(),
	} {
		all = append(all, group...)
	}
	return all
}

func needFreezer(_ Config, d sandbox.Driver) string {
	if _, ok := d.(sandbox.Freezer); !ok {
		return "the driver is no Freezer"
	}
	return ""
}

func needReal(cfg Config, _ sandbox.Driver) string {
	if !cfg.RealPrograms {
		return "the driver runs no real programs"
	}
	return ""
}

func needTerminals(cfg Config, _ sandbox.Driver) string {
	if !cfg.Terminals {
		return "the driver offers no terminals"
	}
	return ""
}

func needIsolation(cfg Config, _ sandbox.Driver) string {
	if !cfg.Isolates {
		return "the driver does not isolate, and says so"
	}
	return ""
}

func needRealIsolation(cfg Config, d sandbox.Driver) string {
	if why := needIsolation(cfg, d); why != "" {
		return why
	}
	return needReal(cfg, d)
}

// fixture holds the driver and the helpers that a case uses.
type fixture struct {
	*testing.T
	cfg    Config
	d      sandbox.Driver
	ctx    context.Context
	cancel context.CancelFunc
	used   []holdfast.BoxID
	open   []*sandbox.Box
}

func (f *fixture) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), f.cfg.Wait)
	defer cancel()
	for _, b := range f.open {
		_ = b.Close()
	}
	for _, id := range f.used {
		if err := f.d.Remove(ctx, id); err != nil {
			f.Errorf("cannot remove a box at the end of the case: %v", err)
		}
	}
	infos, err := f.d.List(ctx)
	if err != nil || len(infos) != 0 {
		f.Errorf("the driver lists boxes after the case, or cannot list them: %+v, %v", infos, err)
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) listen(b *sandbox.Box, req wire.ListenRequest) (address string) {
	f.Helper()
	address, err := b.Listen(f.ctx, req)
	f.must(err)
	return address
}

func (f *fixture) kind(err error, want holdfast.Kind) {
	f.Helper()
	if !holdfast.IsKind(err, want) {
		f.Fatalf("error %v of kind %q, want kind %q", err, holdfast.KindOf(err), want)
	}
}

func (f *fixture) spec(name string) sandbox.Spec {
	f.Helper()
	spec := f.cfg.Spec(f.T, f.d, name)
	f.used = append(f.used, spec.Box)
	return spec
}

// up starts the box of that name with Ensure, and returns its spec.
func (f *fixture) up(name string) sandbox.Spec {
	f.Helper()
	spec := f.spec(name)
	_, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	return spec
}

func (f *fixture) info(d sandbox.Driver, id holdfast.BoxID) (sandbox.Info, bool) {
	f.Helper()
	infos, err := d.List(f.ctx)
	f.must(err)
	for _, info := range infos {
		if info.Box == id {
			return info, true
		}
	}
	return sandbox.Info{}, false
}

func (f *fixture) running(id holdfast.BoxID) bool {
	f.Helper()
	info, ok := f.info(f.d, id)
	return ok && info.Running
}

func (f *fixture) kill(id holdfast.BoxID) {
	f.Helper()
	if f.cfg.Kill != nil {
		f.cfg.Kill(f.T, f.d, id)
		return
	}
	info, ok := f.info(f.d, id)
	if !ok || info.PID <= 1 {
		f.Fatalf("no process to kill in %+v", info)
	}
	f.must(syscall.Kill(info.PID, syscall.SIGKILL))
}

// hello connects to a box with the given fencing token.
func (f *fixture) hello(d sandbox.Driver, id holdfast.BoxID, token uint64) (*sandbox.Box, error) {
	conn, err := d.Connect(f.ctx, id)
	if err != nil {
		return nil, err
	}
	b, err := sandbox.Dial(f.ctx, id, conn, token, nil)
	if err == nil {
		f.open = append(f.open, b)
	}
	return b, err
}

func (f *fixture) dial(id holdfast.BoxID, token uint64) *sandbox.Box {
	f.Helper()
	b, err := f.hello(f.d, id, token)
	f.must(err)
	return b
}

// box starts the box of that name and returns a connection to it.
func (f *fixture) box(name string) *sandbox.Box {
	f.Helper()
	return f.dial(f.up(name).Box, 1)
}

func (f *fixture) call() sandbox.Call {
	f.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	f.must(err)
	return sandbox.Call{ID: holdfast.CallID(id)}
}

// outcome is the result and the output of an exec.
type outcome struct {
	wire.ExecResult
	out, err string
}

func (f *fixture) exec(b *sandbox.Box, req wire.ExecRequest) outcome {
	f.Helper()
	return f.execAs(b, f.call(), req)
}

func (f *fixture) execAs(b *sandbox.Box, call sandbox.Call, req wire.ExecRequest) outcome {
	f.Helper()
	var out, errw bytes.Buffer
	res, err := b.Exec(f.ctx, call, req, sandbox.ExecOptions{Stdout: &out, Stderr: &errw})
	f.must(err)
	return outcome{res, out.String(), errw.String()}
}

// sh runs a script, which must succeed, and returns its output.
func (f *fixture) sh(b *sandbox.Box, script string) string {
	f.Helper()
	o := f.exec(b, wire.ExecRequest{Shell: script})
	if o.Class != holdfast.ExitOK {
		f.Fatalf("%q ended with class %s, code %d, stderr %q: %s", script, o.Class, o.Code, o.err, o.Message)
	}
	return o.out
}

// begin starts an exec that runs in the background of the case.
func (f *fixture) begin(b *sandbox.Box, call sandbox.Call, req wire.ExecRequest) *background {
	f.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	g := &background{cancel: cancel, done: make(chan struct{}), started: make(chan struct{})}
	go func() {
		defer close(g.done)
		g.res, g.err = b.Exec(ctx, call, req, sandbox.ExecOptions{
			Stdout: &g.out, Stderr: &g.out, Started: func(wire.Started) { close(g.started) },
		})
	}()
	f.Cleanup(cancel)
	return g
}

type background struct {
	cancel        context.CancelFunc
	started, done chan struct{}
	out           safeBuffer
	res           wire.ExecResult
	err           error
}

func (f *fixture) await(what string, ch <-chan struct{}) {
	f.Helper()
	select {
	case <-ch:
	case <-time.After(f.cfg.Wait):
		f.Fatalf("%s did not happen in %s", what, f.cfg.Wait)
	}
}

// eventually waits until a condition is true, and fails the case if that takes too long.
func (f *fixture) eventually(what string, cond func() bool) {
	f.Helper()
	deadline := time.Now().Add(f.cfg.Wait)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			f.Fatalf("%s did not become true in %s", what, f.cfg.Wait)
		}
		<-tick.C
	}
}

// read returns the content of a file in the box; "" if the file does not exist.
func (f *fixture) read(b *sandbox.Box, path string) string {
	f.Helper()
	var buf bytes.Buffer
	_, err := b.Read(f.ctx, wire.ReadRequest{Path: path}, &buf)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return ""
	}
	f.must(err)
	return buf.String()
}

func (f *fixture) write(b *sandbox.Box, path, content string) {
	f.Helper()
	_, err := b.Write(f.ctx, f.call(), wire.WriteRequest{Path: path, Parents: true}, []byte(content))
	f.must(err)
}

func (f *fixture) equal(what, got, want string) {
	f.Helper()
	if got != want {
		f.Fatalf("%s: got %s, want %s", what, holdfast.Quote(got), holdfast.Quote(want))
	}
}

// status returns the status of a call that boxd holds; "" if boxd does not hold it.
func (f *fixture) status(b *sandbox.Box, call sandbox.Call) wire.CallStatus {
	f.Helper()
	calls, err := b.Calls(f.ctx)
	f.must(err)
	for _, c := range calls {
		if c.Call == call.ID {
			return c.Status
		}
	}
	return ""
}

// lines returns the text "1\n2\n…n\n".
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}
