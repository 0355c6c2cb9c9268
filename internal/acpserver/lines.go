package acpserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
)

// maxLine is the longest line that is read: below what the connection takes, which
// ends at a longer one.
const maxLine = 9 << 20

// lines hands the editor's messages on, one at a time and in their order: the next
// one only when the handler of the one before was entered, since the connection
// runs each request in a goroutine of its own. What is no message is answered here
// and goes no further.
type lines struct {
	r   *bufio.Reader
	w   io.Writer
	log *slog.Logger

	rest []byte // of the line that is being handed on
	wait bool   // for the handler of that line
	in   chan struct{}
	done chan struct{}
	once sync.Once

	mu     sync.Mutex
	open   int // requests that are being answered, prompts aside
	idle   chan struct{}
	broken error
}

func newLines(r io.Reader, w io.Writer, log *slog.Logger) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), w: w, log: log, in: make(chan struct{}, 1), done: make(chan struct{})}
}

// entered says that the message handed on last has its place.
func (l *lines) entered() {
	select {
	case l.in <- struct{}{}:
	default:
	}
}

// close ends the reading for good.
func (l *lines) close() { l.once.Do(func() { close(l.done) }) }

func (l *lines) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
}

func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open--; l.open == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// failure is why the input ended, nil at its end.
func (l *lines) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// Read implements io.Reader for the connection.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.wait {
			select {
			case <-l.in:
				l.wait = false
			case <-l.done:
				return 0, io.EOF
			}
		}
		line, err := l.line()
		if len(line) > 0 {
			l.take(line)
		}
		if err != nil && len(l.rest) == 0 {
			l.last(err)
			return 0, io.EOF
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// last lets the requests that came before the end be answered.
func (l *lines) last(err error) {
	l.mu.Lock()
	if !errors.Is(err, io.EOF) {
		l.broken = err
	}
	idle := make(chan struct{})
	if l.open > 0 {
		l.idle = idle
	} else {
		close(idle)
	}
	l.mu.Unlock()
	t := time.NewTimer(answerTime)
	defer t.Stop()
	select {
	case <-idle:
	case <-l.done:
	case <-t.C:
	}
}

// line reads a line without its end. One that is too long is read to its end and
// answered; it comes back empty.
func (l *lines) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > maxLine {
			line, long = nil, true
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			l.refuse(-32600, "the message is over 9 MiB")
		}
		return bytes.TrimSpace(line), err
	}
}

// message is a line as the connection reads it: whether it calls the handler is
// told from the same fields.
type message struct {
	JSONRPC string            `json:"jsonrpc"`
	ID      *json.RawMessage  `json:"id,omitempty"`
	Method  string            `json:"method,omitempty"`
	Params  json.RawMessage   `json:"params,omitempty"`
	Result  json.RawMessage   `json:"result,omitempty"`
	Error   *acp.RequestError `json:"error,omitempty"`
}

// take readies a line for the connection, or refuses it.
func (l *lines) take(line []byte) {
	var m message
	switch err := json.Unmarshal(line, &m); {
	case !json.Valid(line):
		l.refuse(-32700, "the line is not JSON")
		return
	case err != nil || line[0] != '{' || m.Method == "" && m.ID == nil:
		l.refuse(-32600, "the line is not a JSON-RPC message")
		return
	}
	// The connection handles this one by itself.
	cancelRequest := m.ID == nil && m.Method == "$/cancel_request"
	l.wait = m.Method != "" && !cancelRequest
	l.rest = append(line, '\n')
}

// refuse answers what has no id that could be read.
func (l *lines) refuse(code int, text string) {
	l.log.Warn("the editor sent something else than a message", "why", text)
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": acp.RequestError{Code: code, Message: text}})
	if err == nil {
		// An editor that does not read either is gone: the next read says so.
		_, _ = l.w.Write(append(b, '\n'))
	}
}
