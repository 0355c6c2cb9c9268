package testkit

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// UID is the ordinary user that tests become. It needs no entry in passwd and owns no file on the
// machine.
const UID = 61_234

// userEnv is the variable with the base directory of a test that runs as that user.
const userEnv = "HOLDFAST_TEST_AS_USER"

// IsUser reports whether this process was started by AsUser, and returns the directory where it may write.
func IsUser() (base string, ok bool) {
	base = os.Getenv(userEnv)
	return base, base != ""
}

// AsUser runs the tests that match pattern again, in a process of the ordinary user UID, as part
// of t: t fails if one of them fails or if none passes. change may add to the environment and the
// attributes of the process. Without root no process can become another user: then the tests are
// skipped with a loud message.
func AsUser(t *testing.T, pattern string, change ...func(*exec.Cmd)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can become another user")
	}
	base := BaseDir(t)
	home := filepath.Join(base, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, UID, UID); err != nil {
		t.Fatal(err)
	}
	// Run a copy, because other users cannot enter the build directory.
	self := filepath.Join(base, "test")
	if err := copyFile(self, "/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	limit := 10 * time.Minute
	if end, ok := t.Deadline(); ok {
		limit = time.Until(end) - 5*time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.v", "-test.run", pattern, "-test.timeout", limit.String())
	cmd.Dir = home
	// The tests that pattern matches run even if they are long: the calling test determines
	// whether they are part of make test or of make check.
	cmd.Env = []string{longTests + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, userEnv + "=" + home, "HOLDFAST_TEST_BOXD=" + Boxd(t)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: UID, Gid: UID}}
	for _, c := range change {
		c(cmd)
	}
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	passed := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(strings.TrimSpace(line), "--- PASS") {
			passed++
		}
	}
	if err != nil || passed == 0 {
		t.Fatalf("as uid %d: %v, %d passed\n%s", UID, err, passed, out.String())
	}
	t.Logf("as uid %d: %d passed, %d skipped", UID, passed, strings.Count(out.String(), "--- SKIP"))
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	// A process that is forked meanwhile would inherit the file open for writing, and then the
	// file could not be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Chmod(to, 0o755)
}
