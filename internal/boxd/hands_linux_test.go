package boxd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

func TestParseStat(t *testing.T) {
	tail := " 1 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 777 21 22"
	for _, tc := range []struct {
		in   string
		want proc
		ok   bool
	}{
		{"5 (sh) S 2" + tail[2:], proc{pid: 5, ppid: 2, group: 3, session: 4, name: "sh", state: 'S', start: 777}, true},
		{"5 (a) S 9 (b) c) R 1" + tail[2:], proc{pid: 5, ppid: 1, group: 3, session: 4, name: "a) S 9 (b) c", state: 'R', start: 777}, true},
		{"5 (x\xff) Z 1" + tail[2:], proc{pid: 5, ppid: 1, group: 3, session: 4, name: "x?", state: 'Z', start: 777}, true},
		{"", proc{}, false},
		{"5 (sh S 1", proc{}, false},
		{"5 (sh) S 1 2", proc{}, false},
		{"5 )sh( S", proc{}, false},
	} {
		got, ok := parseStat(5, []byte(tc.in))
		if ok != tc.ok || got != tc.want {
			t.Errorf("%q: %+v %v", tc.in, got, ok)
		}
	}
	self, ok, err := readProc(os.Getpid())
	if !ok || err != nil || self.ppid != os.Getppid() || self.start == 0 {
		t.Errorf("self: %+v %v", self, ok)
	}
	if _, ok, err := readProc(1 << 30); ok || err != nil {
		t.Error("a process that is not there")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("5 (sh) S 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 777 20"))
	f.Fuzz(func(_ *testing.T, b []byte) { parseStat(1, b); parseMark(b); lookField(string(b), "x") })
}

func TestParseMark(t *testing.T) {
	line := "Limit   Soft Limit  Hard Limit  Units\nMax realtime timeout      %  unlimited            us\n"
	with := func(v string) []byte { return []byte(strings.Replace(line, "%", v, 1)) }
	for in, want := range map[string]uint64{
		"unlimited": 0, "0": 0, "200000": 0, "x": 0,
		strconv.FormatUint(markBase, 10):    0,
		strconv.FormatUint(markBase+42, 10): 42,
	} {
		if got := parseMark(with(in)); got != want {
			t.Errorf("%s: %d, want %d", in, got, want)
		}
	}
	if parseMark([]byte("nothing")) != 0 || parseMark([]byte("Max realtime timeout")) != 0 {
		t.Error("a mark out of nothing")
	}
	if readMark(os.Getpid()) != 0 {
		t.Error("boxd bears a mark between forks")
	}
}

// files are counter files as a driver would hand them over.
type files map[string]string

func (f files) Fork(StartSpec) (int, error) { return 0, errors.New("no forks") }
func (f files) Do(fn func() error) error    { return fn() }
func (f files) Gate(bool)                   {}
func (f files) Counter(name string) (string, bool) {
	s, ok := f[name]
	return s, ok
}

func TestCounters(t *testing.T) {
	v2 := files{
		"memory.usage": "1234\n", "memory.limit": "max\n", "pids.current": "7\n", "pids.max": "512\n",
		"cpu":           "usage_usec 5000\nuser_usec 1\n",
		"memory.events": "low 0\noom 3\noom_kill 2\n", "pids.events": "max 9\n",
	}
	st := (&OSHands{forker: v2, self: os.Getpid()}).Stats()
	if st.MemoryBytes != 1234 || st.MemoryLimit != -1 || st.Pids != 7 || st.PidsLimit != 512 || st.CPUMicros != 5000 || st.OOMKills != 2 {
		t.Errorf("cgroup v2: %+v", st)
	}
	v1 := files{
		"memory.usage": "1234\n", "memory.limit": "9223372036854771712\n", "pids.current": "7\n", "pids.max": "max\n",
		"cpu": "5000000\n", "memory.events": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", "pids.events": "max 1\n",
	}
	h := &OSHands{forker: v1, self: os.Getpid()}
	st = h.Stats()
	if st.MemoryLimit != -1 || st.PidsLimit != -1 || st.CPUMicros != 5000 || st.OOMKills != 4 {
		t.Errorf("cgroup v1: %+v", st)
	}
	if oom, pids := h.Events(); oom != 4 || pids != 1 {
		t.Errorf("events %d %d", oom, pids)
	}
	st = (&OSHands{forker: files{"cpu": "rubbish", "memory.usage": "", "pids.events": "max\n"}, self: os.Getpid()}).Stats()
	if st.CPUMicros != -1 || st.MemoryBytes != -1 || st.OOMKills != -1 {
		t.Errorf("unreadable: %+v", st)
	}
}

func TestStartErrorsHaveKinds(t *testing.T) {
	h := &OSHands{forker: files{}}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		err  error
		dir  string
		kind holdfast.Kind
		say  string
	}{
		{unix.ENOENT, dir, holdfast.KindNotFound, `no program "/bin/x"`},
		{unix.ENOENT, dir + "/absent", holdfast.KindNotFound, "no working directory"},
		{unix.ENOTDIR, file, holdfast.KindNotFound, "no working directory"},
		{unix.EACCES, dir, holdfast.KindDenied, "may not run"},
		{&fs.PathError{Op: "fork", Path: "x", Err: unix.EAGAIN}, dir, holdfast.KindBusy, "no room"},
		{unix.ENOEXEC, dir, holdfast.KindInvalid, "cannot execute"},
		{unix.EIO, dir, holdfast.KindUnavailable, "cannot execute"},
		{holdfast.Errorf(holdfast.KindBusy, "jail", "full"), dir, holdfast.KindBusy, "full"},
	} {
		err := h.startError(StartSpec{Path: "/bin/x", Dir: tc.dir}, tc.err)
		if holdfast.KindOf(err) != tc.kind || !strings.Contains(err.Error(), tc.say) {
			t.Errorf("%v in %s: %v", tc.err, tc.dir, err)
		}
	}
}

// TestUnreadableProcIsAnError: processes that cannot be read are not counted as ended.
func TestUnreadableProcIsAnError(t *testing.T) {
	h := &OSHands{forker: files{}, self: os.Getpid()}
	own, err := os.Open("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0 // every open fails
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, _, readErr := readProc(os.Getpid())
	procs, listErr := h.where(func(uint64) bool { return true })
	left := h.Left(1)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"one process": readErr, "all processes": listErr} {
		if !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(procs) > 0 || len(left) != 1 || left[0].PID != 0 || !strings.Contains(left[0].Name, "cannot list") {
		t.Errorf("%+v, left %+v", procs, left)
	}
}
