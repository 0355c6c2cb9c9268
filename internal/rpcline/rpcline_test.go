package rpcline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
)

// readLines reads everything as a connection does, which enters its handlers at
// once, and returns what it got and what was answered.
func readLines(in io.Reader) (got []string, answered string) {
	var out bytes.Buffer
	l := New(Config{In: in, Out: &out, Log: slog.New(slog.DiscardHandler), Ordered: true})
	scan := bufio.NewScanner(l)
	scan.Buffer(nil, MaxLine+1024)
	for scan.Scan() {
		got = append(got, scan.Text())
		var m message
		if json.Unmarshal(scan.Bytes(), &m) == nil && m.ID != nil {
			l.answered(string(*m.ID))
		}
		l.Entered()
	}
	return got, out.String()
}

func TestLinesHandOnMessagesOnly(t *testing.T) {
	good := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
	for name, c := range map[string]struct {
		in, refused string
		messages    int
	}{
		"messages":         {good + "\n\n  \r\n" + good + "\r\n", "", 2},
		"no end":           {good, "", 1},
		"half a message":   {good + "\n" + good[:20], "-32700", 1},
		"garbage":          {"\x00\xff\x1b[2J\n" + good + "\n", "-32700", 1},
		"a batch":          {"[" + good + "]\n" + good + "\n", "-32600", 1},
		"a number":         {"5\n" + good + "\n", "-32600", 1},
		"wrong types":      {`{"jsonrpc":2,"id":1,"method":"x"}` + "\n" + good + "\n", "-32600", 1},
		"nothing in it":    {`{"jsonrpc":"2.0"}` + "\n" + good + "\n", "-32600", 1},
		"a huge line":      {`{"method":"` + strings.Repeat("x", MaxLine) + `"}` + "\n" + good + "\n", "-32600", 1},
		"huge without end": {good + "\n" + strings.Repeat("x", 3*MaxLine), "-32600", 1},
		"many values":      {`{"method":"x","params":[` + strings.Repeat("[],", MaxValues) + "0]}\n" + good + "\n", "-32600", 1},
		"many commas":      {`{"method":"x","params":["` + strings.Repeat(`[],\",`, MaxValues) + "\"]}\n" + good + "\n", "", 2},
		"an answer":        {`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n", "", 1},
		"a withdrawal":     {`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}` + "\n" + good + "\n", "", 2},
	} {
		got, answered := readLines(strings.NewReader(c.in))
		if len(got) != c.messages || (c.refused == "") != (answered == "") || !strings.Contains(answered, c.refused) || strings.Count(answered, "\n") > 1 {
			t.Errorf("%s: %d messages, answered %q", name, len(got), answered)
		}
	}
}

func TestLinesTellWhyTheyEnd(t *testing.T) {
	l := New(Config{In: io.MultiReader(strings.NewReader("{"), broken{}), Out: io.Discard, Log: slog.New(slog.DiscardHandler), Ordered: true})
	if _, err := io.ReadAll(l); err != nil || l.Failure() == nil {
		t.Errorf("%v %v", err, l.Failure())
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the pipe is gone") }

// TestLinesKeepTheOrder: the next message comes when the handler of the one before
// has begun, and close ends the wait.
func TestLinesKeepTheOrder(t *testing.T) {
	msg := `{"jsonrpc":"2.0","method":"session/cancel"}` + "\n"
	l := New(Config{In: strings.NewReader(msg + msg + msg), Out: io.Discard, Log: slog.New(slog.DiscardHandler), Ordered: true})
	read := make(chan int)
	go func() {
		defer close(read)
		buf := make([]byte, 1<<10)
		for {
			n, err := l.Read(buf)
			if err != nil {
				return
			}
			read <- n
		}
	}()
	<-read
	select {
	case <-read:
		t.Fatal("a message overtook the one before")
	default:
	}
	l.Entered()
	<-read
	_ = l.Close()
	if n, ok := <-read; ok {
		t.Errorf("%d bytes after the end", n)
	}
}

// TestTheEndWaitsForAnswers: the input is over when what it asked for is answered,
// but for what may take long.
func TestTheEndWaitsForAnswers(t *testing.T) {
	var out bytes.Buffer
	l := New(Config{
		In:  strings.NewReader("{\"id\":1,\"method\":\"a\"}\n{\"id\":\"p\",\"method\":\"long\"}\n{\"id\":2,\"method\":\"a\"}\n"),
		Out: &out, Log: slog.New(slog.DiscardHandler), Long: "long",
	})
	ended := make(chan error, 1)
	read := make(chan string, 3)
	go func() {
		scan := bufio.NewScanner(l)
		for scan.Scan() {
			read <- scan.Text()
		}
		ended <- scan.Err()
	}()
	for range 3 {
		<-read
	}
	for _, line := range []string{`{"jsonrpc":"2.0","method":"x"}`, `{"id":2,"method":"ask"}`, `{"id":1,"result":{}}`} {
		if _, err := l.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			t.Fatalf("ended after %s", line)
		default:
		}
	}
	if _, err := l.Write([]byte("{\"id\":2,\"error\":{}}\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("%v %q", err, out.String())
	}
}

func TestLinesAreChecked(t *testing.T) {
	var out bytes.Buffer
	l := New(Config{
		In: strings.NewReader("{\"method\":\"a\"}\n{\"method\":\"b\"}\n"), Out: &out, Log: slog.New(slog.DiscardHandler),
		Check: func(line []byte) error {
			if bytes.Contains(line, []byte("a")) {
				return errors.New("no")
			}
			return nil
		},
	})
	got, err := io.ReadAll(l)
	if err != nil || string(got) != "{\"method\":\"b\"}\n" || !strings.Contains(out.String(), "-32600") {
		t.Errorf("%q %v, answered %q", got, err, out.String())
	}
}

func FuzzLines(f *testing.F) {
	f.Add("{}\n[1]\n{\"id\":1,\"method\":\"x\"}\n{\"method\":\"$/cancel_request\"}")
	f.Add("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}\n\"")
	f.Fuzz(func(t *testing.T, in string) {
		got, answered := readLines(strings.NewReader(in))
		if n := strings.Count(in, "\n") + 1; len(got)+strings.Count(answered, "\n") > n {
			t.Fatalf("%d messages and %q of %d lines", len(got), answered, n)
		}
	})
}
