package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptUp starts a server of its own on $HOLDFAST_HOME; its log is the file log:
// up [flags…].
func scriptUp(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: up [flags…]")
	}
	const serve = `holdfast serve --listen 127.0.0.1:0 --driver mem --set limits.mode=best-effort "$@" >url 2>log & echo $! >pid`
	ts.Check(ts.Exec("sh", append([]string{"-c", serve, "sh"}, args...)...))
	scriptPoll(ts, "the server did not start", func() bool {
		first, _, ready := strings.Cut(ts.ReadFile("url"), "\n")
		if ready {
			_, url, _ := strings.Cut(first, "ready at ")
			ts.Setenv("HOLDFAST_URL", url)
		}
		return ready
	})
}

// scriptDown ends the server that up started, in order or at once: down TERM|KILL.
func scriptDown(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: down TERM|KILL")
	}
	pid := strings.TrimSpace(ts.ReadFile("pid"))
	ts.Check(ts.Exec("kill", "-"+args[0], pid))
	scriptPoll(ts, "the server did not end", func() bool { return ts.Exec("kill", "-0", pid) != nil })
}

func scriptPoll(ts *testscript.TestScript, failure string, done func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			ts.Fatalf("%s within 30 s", failure)
		}
	}
}

// scriptGet asks the server with the owner's token and prints the answer: get PATH.
func scriptGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: get PATH")
	}
	req, err := http.NewRequest(http.MethodGet, ts.Getenv("HOLDFAST_URL")+args[0], nil)
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(ts.Getenv("HOLDFAST_HOME")+"/token")))
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", resp.StatusCode, body)
}

// scriptDamage damages what a file holds at a text: it flips a bit of the first byte, or
// overwrites the head of the database page: damage bit|page FILE TEXT.
func scriptDamage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 || args[0] != "bit" && args[0] != "page" {
		ts.Fatalf("usage: damage bit|page FILE TEXT")
	}
	const page = 4096
	b := []byte(ts.ReadFile(args[1]))
	at := bytes.Index(b, []byte(args[2]))
	if at < 0 {
		ts.Fatalf("%s does not hold %q", args[1], args[2])
	}
	if args[0] == "bit" {
		b[at] ^= 1
	} else {
		copy(b[at/page*page:], bytes.Repeat([]byte{0xff}, 100))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}
