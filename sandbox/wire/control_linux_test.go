package wire

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
)

// controlPair is a Control and the driver's end of its socket.
func controlPair(t *testing.T) (*Control, int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := NewControl(fds[0])
	t.Cleanup(func() {
		c.Close()
		for _, fd := range c.files {
			_ = syscall.Close(fd)
		}
	})
	return c, fds[1]
}

func send(fd int, message []byte, files []int) error {
	defer syscall.Close(fd)
	return SendFiles(message, files, func(b, rights []byte) (int, error) {
		return syscall.SendmsgN(fd, b, rights, nil, 0)
	})
}

// named makes files whose content is their place.
func named(t *testing.T, n int) []int {
	t.Helper()
	var fds []int
	for i := range n {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := fmt.Fprint(f, i+1); err != nil {
			t.Fatal(err)
		}
		fds = append(fds, int(f.Fd()))
	}
	return fds
}

// TestConfigComesWithItsFiles: each field that names a file has its descriptor, more
// of them than one write takes, and none goes on to a child.
func TestConfigComesWithItsFiles(t *testing.T) {
	const mounts = 300
	want := Config{
		Box: "w-x", Listener: 1, StateFD: 2, Env: []string{"A=1"},
		Jail: &Jail{WorkCgroup: 3, BoxdProcs: 4, WorkTasks: []int{5, 6}, BoxdTasks: []int{7, 8}, Counters: map[string]int{"cpu": 9}, Mounts: []Mount{
			{Target: "/a", Content: "one\x00\xff\"", Length: 6}, {Target: "/l", Link: "x"}, {Target: "/b", Content: strings.Repeat("z", 300<<10), Length: 300 << 10},
		}},
	}
	for i := range mounts {
		want.Jail.Mounts = append(want.Jail.Mounts, Mount{Target: fmt.Sprint("/m", i), TreeFD: 10 + i})
	}
	message, err := AppendConfig(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	c, theirs := controlPair(t)
	sent := make(chan error, 1)
	files := named(t, 9+mounts)
	go func() { sent <- send(theirs, message, files) }()
	got, err := c.Config()
	if err = firstOf(err, <-sent); err != nil {
		t.Fatal(err)
	}
	// Back to places, by what the files hold.
	place := func(at *int) {
		if *at == 0 {
			return
		}
		b := make([]byte, 8)
		n, err := syscall.Pread(*at, b, 0)
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(*at), syscall.F_GETFD, 0)
		if err != nil || errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: %v, flags %d %v", *at, err, flags, errno)
		}
		_, _ = fmt.Sscan(string(b[:n]), at)
	}
	j := got.Jail
	for _, at := range []*int{&got.Listener, &got.StateFD, &j.WorkCgroup, &j.BoxdProcs, &j.WorkTasks[0], &j.WorkTasks[1], &j.BoxdTasks[0], &j.BoxdTasks[1]} {
		place(at)
	}
	cpu := j.Counters["cpu"]
	place(&cpu)
	j.Counters["cpu"] = cpu
	for i := range j.Mounts {
		place(&j.Mounts[i].TreeFD)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestControlRefuses: what is not whole is not a configuration.
func TestControlRefuses(t *testing.T) {
	frame := func(text string) []byte {
		b, err := AppendFrame(nil, FrameRequest, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tc := range map[string]struct {
		message []byte
		files   int
		say     string
	}{
		"a file that did not come": {append(frame(`{"listener":2}`), frame("")...), 1, "came with the configuration"},
		"a place below the first":  {append(frame(`{"listener":-1}`), frame("")...), 1, "came with the configuration"},
		"a mount's file":           {append(frame(`{"jail":{"mounts":[{"tree_fd":1}]}}`), frame("")...), 0, "came with the configuration"},
		"less content":             {append(frame(`{"jail":{"mounts":[{"length":5}]}}`), frame("four")...), 0, "came with the configuration"},
		"more content":             {append(frame(`{"jail":{"mounts":[{"length":3}]}}`), frame("four")...), 0, "came with the configuration"},
		"half a message":           {frame(`{"listener":1}`)[:9], 1, "descriptor 3"},
		"too long":                 {[]byte("R\xff\xff\xff\xff"), 0, "descriptor 3"},
	} {
		c, theirs := controlPair(t)
		if err := send(theirs, tc.message, named(t, tc.files)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Config()
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), tc.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nothing, and a configuration without the contents behind it: the server went away.
	for _, message := range [][]byte{nil, frame(`{"listener":1}`)} {
		c, theirs := controlPair(t)
		if err := send(theirs, message, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Config(); err != io.EOF {
			t.Errorf("after %q: %v", message, err)
		}
	}
}
