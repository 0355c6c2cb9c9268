package rooted

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// TestOnlyNewEntriesAreGivenAway: whoever may rename in a directory puts a file or directory of root in the place of each new
// entry before the server gives that its owner. The file and the directory stay root's.
func TestOnlyNewEntriesAreGivenAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can give files away")
	}
	const rounds = 300
	for name, c := range map[string]struct {
		make func(path string) error
		give func(in Dir, name string) error
	}{
		"symlink": {
			make: func(path string) error { return os.WriteFile(path, []byte("root's"), 0o600) },
			give: func(in Dir, name string) error { return in.Symlink("target", name, Attr{UID: 1000, GID: 1000}) },
		},
		"directory": {
			make: func(path string) error { return os.MkdirAll(filepath.Join(path, "of-root"), 0o700) },
			give: func(in Dir, name string) error {
				d, err := in.Mkdir(name)
				if err != nil {
					return err
				}
				defer d.Close()
				return d.Set(Attr{UID: 1000, GID: 1000, Mode: 0o755}, true)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, c.make(filepath.Join(dir, "secret")))
			secret, err := os.Open(filepath.Join(dir, "secret"))
			must(t, err)
			defer secret.Close()
			in, err := OpenTree(dir)
			must(t, err)
			defer in.Close()
			stop := swapEach(t, dir, "secret")
			refused := 0
			for i := range rounds {
				err := c.give(in, fmt.Sprint("new", i))
				if err != nil && !holdfast.IsKind(err, holdfast.KindConflict) && !holdfast.IsKind(err, holdfast.KindNotFound) {
					t.Fatal(err)
				}
				if err != nil {
					refused++
				}
				var st unix.Stat_t
				must(t, unix.Fstat(int(secret.Fd()), &st))
				if st.Uid != 0 {
					t.Fatalf("round %d: the server gave root's entry to uid %d", i, st.Uid)
				}
			}
			t.Logf("%d entries were refused, %d swapped", refused, stop())
		})
	}
}

// swapEach exchanges each new entry of a directory with the entry secret, wherever that is by then. stop returns how
// often that succeeded.
func swapEach(t *testing.T, dir, secret string) (stop func() int) {
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	must(t, err)
	_, err = unix.InotifyAddWatch(watch, dir, unix.IN_CREATE)
	must(t, err)
	swapped := make(chan int)
	go func() {
		n := 0
		defer func() { swapped <- n }()
		for buf := make([]byte, 4096); ; {
			got, err := unix.Read(watch, buf)
			if err != nil || got < unix.SizeofInotifyEvent {
				return
			}
			for at := 0; at < got; {
				size := int(binary.NativeEndian.Uint32(buf[at+12:]))
				at += unix.SizeofInotifyEvent
				name := string(bytes.TrimRight(buf[at:at+size], "\x00"))
				at += size
				if name == "end" {
					return
				}
				from, to := filepath.Join(dir, secret), filepath.Join(dir, name)
				if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) == nil {
					secret, n = name, n+1
				}
			}
		}
	}()
	return func() int {
		must(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
		defer unix.Close(watch)
		return <-swapped
	}
}
