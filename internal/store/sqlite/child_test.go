package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// childEnv makes the test binary play another process: its value is a mode and
// the path of the database.
const childEnv = "HOLDFAST_SQLITE_CHILD"

// child does what a child process is asked for and ends it; it returns in the
// test itself.
func child() {
	mode, path, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		return
	}
	cfg := Config{Path: path}
	var fsize bool
	switch mode {
	case "append":
		cfg.CheckpointBytes = 256 << 10
	case "rss":
	case "fsize":
		fsize = true
	case "hold":
	case "rotate":
	case "audit":
		cfg.Deliver = toldOfRecords
	default:
		childFails("unknown mode " + mode)
	}
	ctx := context.Background()
	s, err := open(ctx, cfg)
	if err != nil {
		childFails(err)
	}
	switch {
	case mode == "hold":
		fmt.Println("ready")
		<-time.After(time.Hour) // without a timer the runtime would end a program that only waits
	case mode == "rotate":
		childRotates(ctx, s)
	case mode == "rss":
		childRSS(ctx, s)
	case fsize:
		lim := syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &lim); err != nil {
			childFails(err)
		}
	}
	childAppends(ctx, s, mode)
}

// toldOfRecords sends recorded verdicts to one receiver.
func toldOfRecords(t holdfast.EventType) []string {
	if t == holdfast.EventToolAllowed || t == holdfast.EventSessionCreated {
		return []string{"receiver"}
	}
	return nil
}

func childFails(err any) {
	fmt.Fprintln(os.Stderr, "child:", err)
	os.Exit(3)
}

// childAppends appends to eight sessions for ever, each from its newest number
// on, and prints "session seq" for each acknowledged event; it ends with the
// first error, printed after a "!".
//
// Half of the events are recorded in the audit chain in mode audit; half of the changes store a
// checkpoint in mode append.
func childAppends(ctx context.Context, s *opened, mode string) {
	types := [2]holdfast.EventType{"crash", "crash"}
	if mode == "audit" {
		types[1] = holdfast.EventToolAllowed
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := testID(i)
			head, err := s.Head(ctx, id)
			if err != nil {
				if _, err = s.Commit(ctx, creation(id)); err == nil {
					head = 1
				}
			}
			for n := 1 + i%3; err == nil; {
				c := journal.NewChange(id)
				c.LastSeq = head
				e := journal.Encoded{Change: c}
				for k := range n {
					e.Events = append(e.Events, journal.Draft{Type: types[(head+int64(k))%2]})
					e.Data = append(e.Data, fmt.Appendf(nil, `{"seq":%d,"pad":%q}`, head+int64(k)+1, strings.Repeat("x", 300)))
				}
				if mode == "append" && head/int64(n)%2 == 0 {
					e.Events[n-1].Type = holdfast.EventSnapshotTaken
					e.Files = testFiles(i, head+int64(n))
				}
				if _, err = s.Commit(ctx, e); err == nil {
					head += int64(n)
					mu.Lock()
					fmt.Printf("%d %d\n", i, head)
					mu.Unlock()
				}
			}
			mu.Lock()
			fmt.Printf("! %v | %v\n", err, s.Healthy())
			mu.Unlock()
		})
	}
	wg.Wait()
	os.Exit(0)
}

// testFiles returns a checkpoint of the n-th session at the event with this number, and its pack.
func testFiles(n int, seq int64) *journal.FilesChange {
	return &journal.FilesChange{
		Checkpoint: &journal.Checkpoint{
			Checkpoint: holdfast.Checkpoint{ID: testCheckpoint(n, seq), Session: testID(n), Reason: holdfast.CheckpointDirect, Seq: seq},
			Scope:      testID(n).Box(),
		},
		Packs: []journal.Pack{{ID: fmt.Sprintf("%032x%032x", n, seq), Bytes: 1}},
	}
}

func testCheckpoint(n int, seq int64) holdfast.CheckpointID {
	return holdfast.CheckpointID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%04x%08x", n, seq))
}

// process is a running child.
type process struct {
	*exec.Cmd
	out *bufio.Scanner
	err strings.Builder
}

func startChild(t *testing.T, mode, path string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], "-test.run=^$")}
	p.Env = append(os.Environ(), childEnv+"="+mode+":"+path)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stderr = &p.err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	})
	p.out = bufio.NewScanner(out)
	return p
}

// line is the child's next line of output; empty at its end.
func (p *process) line() string {
	if p.out.Scan() {
		return p.out.Text()
	}
	return ""
}
