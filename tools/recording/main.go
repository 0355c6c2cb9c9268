// Recording runs holdfast on a pseudo-terminal, kills its server with SIGKILL during a tool call,
// and draws what the terminal showed as an SVG. Except for the commands, everything in the
// picture is real output; ids, ports and times are normalized, so that each run draws the same
// picture.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// step is a command that is typed, and a text that the terminal has to show before the next step.
type step struct {
	command, shows string
	// pause is how long the animation pauses after the step, in seconds.
	pause float64
}

const (
	rows, columns = 40, 112
	patience      = 60 * time.Second
)

// message is the user's first message, which has a script for the scripted model.
const message = `Please count to five in log.txt, one number a second, and tell me.
<script>[{"tool":"Bash","input":{"command":"for i in 1 2 3 4 5; do echo $i >> log.txt; sleep 1; done"}},{"say":"Counted."}]</script>
`

var scene = []step{
	{"holdfast serve 2>log &", "model:", 0.6},
	{"holdfast session create --title counting", "-", 0.4},
	{"holdfast send --no-wait counting - < message     # \"count to five, one number a second\"", "-", 0.4},
	{"sleep 2; kill -9 %1                              # in the middle of it", "$", 1},
	{"holdfast session show counting", "does not answer", 1},
	{"holdfast serve 2>log &", "model:", 0.6},
	{"sleep 5; holdfast files cat counting log.txt     # the command ran on, once", "5", 1.2},
	{"holdfast session transcript counting", "Counted.", 0.8},
	{"holdfast send counting 'Do you remember me?'", "You have sent 2 messages", 5},
}

func main() {
	program := flag.String("program", "bin/holdfast", "the program")
	out := flag.String("out", "docs/recording.svg", "the picture")
	flag.Parse()
	if err := record(*program, *out); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func record(program, out string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "holdfast-recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	if err := os.WriteFile(filepath.Join(home, "message"), []byte(message), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	t, err := openTerminal(home, []string{
		"HOME=" + home, "PATH=" + filepath.Dir(program) + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8",
		"TERM=xterm-256color", "PS1=$ ", "HOLDFAST_LISTEN=127.0.0.1:" + port, "HOLDFAST_URL=http://127.0.0.1:" + port,
	})
	if err != nil {
		return err
	}
	defer t.close()
	var screens []shown
	if err := t.prompt(); err != nil {
		return err
	}
	for _, s := range scene {
		said, err := t.run(s)
		if err != nil {
			return fmt.Errorf("the recording failed at the command %s: %w\n%s", s.command, err, said)
		}
		screens = append(screens, shown{s, lines(normal(said, port))})
	}
	return os.WriteFile(out, draw(screens), 0o644)
}

// shown is a step with its output.
type shown struct {
	step
	lines []line
}

var (
	uuid    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)
	took    = regexp.MustCompile(`[0-9.]+ ms`)
	job     = regexp.MustCompile(`(?m)^\[[0-9]+\].*\n`)
	shellOn = regexp.MustCompile(`(?m)^.*: line [0-9]+: .*\n`)
)

// normal replaces the parts of an output that differ from run to run: ids, the port, times, and
// the shell's messages about jobs.
func normal(s, port string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = job.ReplaceAllString(s, "")
	s = shellOn.ReplaceAllString(s, "")
	s = strings.ReplaceAll(s, "127.0.0.1:"+port, "127.0.0.1:4100")
	s = uuid.ReplaceAllStringFunc(s, func(id string) string {
		if ids[id] == "" {
			ids[id] = fmt.Sprintf("01890a5d-0000-7000-8000-%012d", len(ids)+1)
		}
		return ids[id]
	})
	return took.ReplaceAllString(s, "… ms")
}

var ids = map[string]string{}
