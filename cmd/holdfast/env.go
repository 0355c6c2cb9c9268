package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// errPipe is the error that a write to a closed pipe returns.
const errPipe = syscall.EPIPE

// env holds what a command works with: its context, environment variables, streams and the global flags.
type env struct {
	ctx            context.Context
	drivers        app.Drivers
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
	color          bool
	url            string
	// contextName is the value of --context, empty if it was not given.
	contextName string
	// tokenFrom describes which token was sent, for hints. It is empty until token is called.
	tokenFrom string
}

// client returns a client for the server that the flags and the environment name. It accepts a
// missing token, because the server refuses the request then.
func (e *env) client() (*client.Client, error) { return e.clientWith(client.Config{}) }

// clientWith is client with further settings in cfg. It reports waits on stderr, but not with --json
// or if cfg sets Waiting.
func (e *env) clientWith(cfg client.Config) (_ *client.Client, err error) {
	chosen, err := e.chosen()
	if err != nil {
		return nil, err
	}
	cfg.URL = e.urlOf(chosen)
	if cfg.Token, err = e.token(cfg.URL, chosen); err != nil {
		return nil, err
	}
	if chosen == nil && e.givenURL() == "" {
		cfg.Address = e.address
	}
	if cfg.Waiting == nil && !e.json {
		cfg.Waiting = func(w client.Wait) { e.note("%s", w) }
	}
	return client.New(cfg)
}

// ask calls a method of the client of the server that the flags and the environment choose, and returns its result.
func ask[T any](e *env, method func(*client.Client, context.Context) (T, error)) (T, error) {
	c, err := e.client()
	if err != nil {
		var none T
		return none, err
	}
	return method(c, e.ctx)
}

// serverURL returns the server's URL: that of --context, else --url, else HOLDFAST_URL, else of the context in
// HOLDFAST_CONTEXT, else of the current context, else of the data directory's server, else client.DefaultURL.
func (e *env) serverURL() string {
	c, _ := e.chosen() // if the file of contexts cannot be read, clientWith reports that error
	return e.urlOf(c)
}

// urlOf returns the URL of the server of c, the context of this command, or, if c is nil, of the
// server that is chosen without a context.
func (e *env) urlOf(c *serverContext) string {
	if c != nil {
		return c.URL
	}
	return cmp.Or(e.givenURL(), e.address(), client.DefaultURL)
}

// givenURL returns the URL of --url or HOLDFAST_URL. It returns "" if neither is set, or if
// --context chooses the server of the data directory.
func (e *env) givenURL() string {
	if e.contextName == thisMachine {
		return ""
	}
	return cmp.Or(e.url, e.getenv("HOLDFAST_URL"))
}

// address returns the address that the server of the data directory recorded when it started to
// listen, or "" if there is none.
func (e *env) address() string {
	dir, err := config.DataDir(e.getenv)
	if err != nil {
		return ""
	}
	return lifecycle.ReadAddress(dir)
}

// token returns HOLDFAST_TOKEN, else the key in the file of the context c, else the owner's
// token in the data directory. The owner's token is never sent to the server of a context, and
// to another machine only if HOLDFAST_HOME is set. c is nil without a context.
func (e *env) token(server string, c *serverContext) (string, error) {
	if token := e.getenv("HOLDFAST_TOKEN"); token != "" {
		e.tokenFrom = "HOLDFAST_TOKEN was sent"
		if !sendable(token) {
			return "", holdfast.Errorf(holdfast.KindInvalid, "token", "the value of HOLDFAST_TOKEN cannot be sent as a token: it is too long or has characters that a token cannot have").
				WithHint("unset HOLDFAST_TOKEN, or set it to what is in $HOLDFAST_HOME/token")
		}
		return token, nil
	}
	switch {
	case c != nil && c.TokenFile == "":
		e.tokenFrom = "no token was sent: the context names no file with one"
		return "", nil
	case c != nil:
		e.tokenFrom = "the key in " + c.TokenFile + " was sent"
		return readKey(c.TokenFile)
	}
	if !onLoopback(server) && e.getenv("HOLDFAST_HOME") == "" {
		e.tokenFrom = "no token was sent: that of a data directory here is not for another machine"
		return "", nil
	}
	dir, err := config.DataDir(e.getenv)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "token")
	token, err := lifecycle.ReadToken(file)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		e.tokenFrom = "no token was sent: there is no " + file
		return "", nil
	}
	e.tokenFrom = "the token in " + file + " was sent"
	return token, err
}

// onLoopback reports whether a server's URL stays on this machine.
func onLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return true // a malformed URL is refused later, by client.New
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// openLocal opens a file of this machine. op names the command in its errors.
func openLocal(op, name string) (*os.File, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, holdfast.Errorf(holdfast.KindNotFound, op, "there is no local file %s", holdfast.Quote(name)).WithHint("name a file that exists on this machine")
	} else if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the local file cannot be opened: %w", err).WithHint("name a file that you can read")
	}
	return f, nil
}

// hinted adds a hint to err if err is of the kind and has no hint yet.
func hinted(err error, kind holdfast.Kind, format string, args ...any) error {
	if !holdfast.IsKind(err, kind) || holdfast.HintOf(err) != "" {
		return err
	}
	return (&holdfast.Error{Kind: kind, Err: err}).WithHint(format, args...)
}

// newKey returns a new idempotency key: with it a message is accepted once, even if it is sent
// again after the connection broke.
func newKey() (string, error) { return holdfast.NewUUID(time.Now(), rand.Reader) }

// print writes a value as JSON on one line, to the first writer of to, or without one to stdout.
func (e *env) print(v any, to ...io.Writer) error {
	w := e.stdout
	if len(to) > 0 {
		w = to[0]
	}
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, plain.EscapedJSON(doc.String()))
	return err
}

// say prints a text for people on stdout, or doc with --json. Callers pass arguments that could
// hide something, such as control characters, through line first.
func (e *env) say(doc any, format string, args ...any) error {
	if e.json {
		return e.print(doc)
	}
	_, err := io.WriteString(e.stdout, prose(fmt.Sprintf(format+"\n", args...)))
	return err
}

// note writes a line on stderr that is not part of the command's result.
func (e *env) note(format string, args ...any) {
	fmt.Fprintf(e.stderr, "%s%s%s\n", e.style(dim), line(fmt.Sprintf(format, args...)), e.style(reset))
}

// table writes rows in columns; the cells are made safe for a terminal.
func (e *env) table(head []string, rows [][]string) error { return e.lines(plain.Table(head, rows)) }

// listing prints doc with --json, else rows as a table.
func (e *env) listing(doc any, head []string, rows [][]string) error {
	if e.json {
		return e.print(doc)
	}
	return e.table(head, rows)
}

// lines writes lines that are safe for a terminal on stdout.
func (e *env) lines(lines []string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(e.stdout, l); err != nil {
			return err
		}
	}
	return nil
}

// The escape sequences of the styles; env.style returns "" for them without colour.
const (
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	bold  = "\x1b[1m"
	reset = "\x1b[0m"
)

func (e *env) style(s string) string {
	if e.color && isTerminal(e.stderr) {
		return s
	}
	return ""
}

// look returns the escape sequence of a style, for plain.Printer.
func (e *env) look(s plain.Style) string {
	return e.style(map[plain.Style]string{plain.Dim: dim, plain.Red: red, plain.Green: green, plain.Reset: reset}[s])
}

// isTerminal reports whether a stream, perhaps wrapped by this package, is a terminal.
func isTerminal(w any) bool {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	if r, is := w.(*endsWithReader); is {
		w = r.Writer
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
