//go:build linux

package local_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// playServer starts the box it is told to, with a process in it, says so and
// waits for its end.
func playServer() int {
	var s sandbox.Spec
	if err := json.Unmarshal([]byte(os.Getenv("LOCAL_TEST_SPEC")), &s); err != nil {
		return 2
	}
	d, err := local.New(local.Config{
		Home: os.Getenv("LOCAL_TEST_HOME"), Boxd: boxd.File(os.Getenv("HOLDFAST_TEST_BOXD")),
		LimitsMode: sandbox.LimitsBestEffort, Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(os.Getenv("LOCAL_TEST_HOME")),
	})
	if err != nil {
		return 3
	}
	ctx := context.Background()
	if os.Getenv("LOCAL_TEST_PREWARM") != "" {
		if err := d.Prewarm(ctx, 2); err != nil {
			fmt.Println(err)
			return 8
		}
	}
	fmt.Println("starting")
	if os.Getenv("LOCAL_TEST_STILL") != "" {
		return playStill(ctx, d, s)
	}
	s, _ = d.Reserve(s)
	if _, err := d.Ensure(ctx, s); err != nil {
		fmt.Println(err)
		return 4
	}
	conn, err := d.Connect(ctx, s.Box)
	if err != nil {
		return 5
	}
	b, err := sandbox.Dial(ctx, s.Box, conn, 1, nil)
	if err != nil {
		return 6
	}
	_, err = b.Exec(ctx, sandbox.Call{ID: "01890a5d-ac96-774b-bcce-b302099a8057"}, wire.ExecRequest{Shell: "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo x >> ran; echo done"},
		sandbox.ExecOptions{Started: func(wire.Started) { fmt.Println("ready", b.Boot()) }})
	fmt.Println(err)
	return 7
}

// serve starts a server process on dir; lines are what it prints.
func serve(t *testing.T, dir string, s sandbox.Spec, env ...string) (cmd *exec.Cmd, lines *bufio.Scanner) {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=server", "LOCAL_TEST_SPEC="+string(raw), "LOCAL_TEST_HOME="+dir, "HOLDFAST_TEST_BOXD="+testkit.Boxd(t))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestAnyBoxSurvivesItsServer: SIGKILL ends the server and nothing of the box;
// the next one finds the box, the running call, and its output.
func TestAnyBoxSurvivesItsServer(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	s := spec(dir, "survivor")
	t.Cleanup(func() { _ = d.Remove(context.Background(), s.Box) })
	cmd, lines := serve(t, dir, s)
	boot := ""
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			boot = rest
			break
		}
	}
	if boot == "" {
		t.Fatal("the server did not get ready")
	}
	kill(t, cmd)
	infos, err := d.List(t.Context())
	if err != nil || len(infos) != 1 || !infos[0].Running {
		t.Fatalf("%+v %v", infos, err)
	}
	info, err := d.Ensure(t.Context(), s)
	if err != nil || info.PID != infos[0].PID {
		t.Fatalf("%+v %v", info, err)
	}
	tokens.Add(1)
	b := dial(t, d, s.Box)
	if b.Boot() != boot {
		t.Fatalf("boot %s, was %s", b.Boot(), boot)
	}
	sh(t, b, "touch go")
	var out strings.Builder
	res, err := b.Exec(t.Context(), sandbox.Call{ID: "01890a5d-ac96-774b-bcce-b302099a8057"}, wire.ExecRequest{}, sandbox.ExecOptions{Stdout: &out, AttachOnly: true})
	if err != nil || res.Class != holdfast.ExitOK || out.String() != "begun\ndone\n" {
		t.Fatalf("%+v %v %q", res, err, out.String())
	}
	if got := sh(t, b, "cat ran"); got != "x" {
		t.Fatalf("it ran %q", got)
	}
}

// TestAnyServerKilledWhileStarting: whatever moment the server dies in, the next
// one can end the box, and nothing is left (checked when the driver closes).
func TestAnyServerKilledWhileStarting(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	rng := mrand.New(mrand.NewPCG(1, 2))
	for round := range 20 {
		s := spec(dir, fmt.Sprintf("killed-%d", round))
		cmd, lines := serve(t, dir, s)
		if !lines.Scan() || lines.Text() != "starting" {
			t.Fatalf("the server said %q", lines.Text())
		}
		// A start takes about ten milliseconds.
		<-time.After(time.Duration(rng.IntN(15_000)) * time.Microsecond)
		kill(t, cmd)
		if err := d.Remove(t.Context(), s.Box); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "no process is left", func() bool { return len(processesOf(dir)) == 0 })
	}
	again := open(t, dir, bestEffort) // sweeps what is half made
	infos, err := again.List(t.Context())
	if err != nil || len(infos) != 0 {
		t.Fatalf("%+v %v", infos, err)
	}
}
