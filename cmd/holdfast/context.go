package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// thisMachine is the name of the built-in context: the server of the data directory.
const thisMachine = "local"

type contextCmd struct {
	List contextListCmd `cmd:"" aliases:"ls" help:"List the servers that commands can talk to."`
	Add  contextAddCmd  `cmd:"" help:"Add a server, or change one."`
	Use  contextUseCmd  `cmd:"" help:"Choose the server that commands talk to from now on."`
	Rm   contextRmCmd   `cmd:"" help:"Forget a server."`
}

// contexts is the content of the contexts file: the servers that the user has given names.
type contexts struct {
	// Current is the context of commands that choose no server; empty means thisMachine.
	Current  string                   `json:"current,omitempty"`
	Contexts map[string]serverContext `json:"contexts"`
}

// serverContext is a named server: its URL, and the file that holds the API key for it.
type serverContext struct {
	URL       string `json:"url"`
	TokenFile string `json:"token_file,omitempty"`
}

// contextsFile returns the path of the file with the contexts, or "" if there is neither
// XDG_CONFIG_HOME nor a home directory.
func (e *env) contextsFile() string { return e.userFile("XDG_CONFIG_HOME", ".config", "contexts.json") }

// userFile returns the path of holdfast/NAME in the directory that an XDG variable names, or, if
// it is not set, in fallback below the home directory. It returns "" if neither is known.
func (e *env) userFile(variable, fallback, name string) string {
	dir := e.getenv(variable)
	if home := e.getenv("HOME"); !filepath.IsAbs(dir) && filepath.IsAbs(home) {
		dir = filepath.Join(home, fallback)
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "holdfast", name)
}

func (e *env) readContexts() (contexts, error) {
	all := contexts{Contexts: map[string]serverContext{}}
	path := e.contextsFile()
	if path == "" {
		return all, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if all.Contexts == nil {
		all.Contexts = map[string]serverContext{}
	}
	if err != nil {
		return all, holdfast.Errorf(holdfast.KindInvalid, "context", "the contexts file %s cannot be read: %w", path, err).WithHint("repair the contexts file, or remove it and add the servers again")
	}
	return all, nil
}

func (e *env) writeContexts(all contexts) error {
	path := e.contextsFile()
	if path == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "context", "there is no home directory to keep contexts in").WithHint("set XDG_CONFIG_HOME")
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = durable.Replace(path, durable.Bytes(append(raw, '\n')))
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "context", "the contexts file cannot be written: %w", err)
	}
	return nil
}

// chosen returns the context of this command: the one that --context names, else that of
// HOLDFAST_CONTEXT, else the current one. It returns nil for the server of the data directory,
// or if --url or HOLDFAST_URL decides.
func (e *env) chosen() (*serverContext, error) {
	name := e.contextName
	if name == "" && e.givenURL() != "" {
		return nil, nil
	}
	all, err := e.readContexts()
	if err != nil {
		return nil, err
	}
	name = cmp.Or(name, e.getenv("HOLDFAST_CONTEXT"), all.Current, thisMachine)
	if name == thisMachine {
		return nil, nil
	}
	c, ok := all.Contexts[name]
	if !ok {
		return nil, unknownContext(name)
	}
	return &c, nil
}

func unknownContext(name string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "context", "there is no server context named %s", holdfast.Quote(name)).
		WithHint("holdfast context list shows the contexts; holdfast context add NAME URL adds one")
}

type contextListCmd struct{}

// Run lists the contexts.
func (*contextListCmd) Run(e *env) error {
	all, err := e.readContexts()
	if err != nil {
		return err
	}
	current := cmp.Or(all.Current, thisMachine)
	if e.json {
		return e.print(map[string]any{"current": current, "contexts": all.Contexts})
	}
	rows := [][]string{{mark(current == thisMachine), thisMachine, "the server of the data directory", ""}}
	for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
		c := all.Contexts[name]
		rows = append(rows, []string{mark(current == name), name, c.URL, c.TokenFile})
	}
	return e.table([]string{"", "NAME", "SERVER", "TOKEN FILE"}, rows)
}

func mark(current bool) string {
	if current {
		return "*"
	}
	return ""
}

type contextAddCmd struct {
	Name      string `arg:"" help:"A name for the server: letters, digits, dots and hyphens."`
	Server    string `arg:"" help:"Its URL."`
	TokenFile string `placeholder:"FILE" help:"File that holds a key for it, closed to others; - reads the key from stdin and keeps it."`
	Use       bool   `help:"Choose it at once."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*contextAddCmd) Help() string {
	return `Without a token file, requests to the server carry HOLDFAST_TOKEN; the owner token of this machine is never sent to it.

Examples:
  holdfast context add team https://holdfast.example.com --token-file - --use < key
  holdfast --context team session list`
}

// Run adds a context.
func (c *contextAddCmd) Run(e *env) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`).MatchString(c.Name) || c.Name == thisMachine {
		return holdfast.Errorf(holdfast.KindInvalid, "context", "%s cannot be the name of a server context", holdfast.Quote(c.Name)).
			WithHint("use letters, digits, dots and hyphens, and another name than %s", thisMachine)
	}
	one, err := client.New(client.Config{URL: c.Server})
	if err != nil {
		return err
	}
	one.Close()
	all, err := e.readContexts()
	if err != nil {
		return err
	}
	file := c.TokenFile
	switch file {
	case "":
	case "-":
		if file, err = e.keepToken(c.Name); err != nil {
			return err
		}
	default:
		if file, err = filepath.Abs(file); err == nil {
			_, err = readKey(file)
		}
		if err != nil {
			return err
		}
	}
	all.Contexts[c.Name] = serverContext{URL: c.Server, TokenFile: file}
	if c.Use {
		all.Current = c.Name
	}
	if err := e.writeContexts(all); err != nil {
		return err
	}
	return e.say(map[string]any{"context": c.Name, "current": all.Current == c.Name}, "%s is %s", c.Name, c.Server)
}

// keepToken reads a key from stdin, stores it next to the contexts file and returns its path.
func (e *env) keepToken(name string) (string, error) {
	path := e.contextsFile()
	raw, err := io.ReadAll(io.LimitReader(e.stdin, maxKey+1))
	if err != nil || path == "" {
		return "", holdfast.Errorf(holdfast.KindInvalid, "context", "the key cannot be read from stdin, or there is no home directory to store it in").WithHint("put the key into a file and name the file with --token-file")
	}
	token, err := checkKey("stdin", string(raw))
	if err != nil {
		return "", err
	}
	file := filepath.Join(filepath.Dir(path), "token-"+name)
	if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
		err = durable.Replace(file, durable.Bytes([]byte(token+"\n")))
	}
	if err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, "context", "the file for the key from stdin cannot be written: %w", err)
	}
	return file, nil
}

// maxKey is the most bytes that are read as a key, far above the length of any key.
const maxKey = 4096

// readKey reads the key of a context from a file that only its owner may be able to read.
func readKey(file string) (string, error) {
	info, err := os.Stat(file)
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0) {
		return "", holdfast.Errorf(holdfast.KindDenied, "token", "the key file %s is not a regular file that only its owner can access", holdfast.Quote(file)).
			WithHint("chmod 600 %s", word(file))
	}
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return "", holdfast.Errorf(holdfast.KindInvalid, "token", "the file with the API key of the context cannot be read: %w", err).WithHint("holdfast context add NAME URL --token-file FILE")
	}
	return checkKey(holdfast.Quote(file), string(raw))
}

// checkKey returns the token in raw if it can be sent. Its error does not quote the token.
func checkKey(from, raw string) (string, error) {
	token := strings.TrimSpace(raw)
	if token == "" || !sendable(token) {
		return "", holdfast.Errorf(holdfast.KindInvalid, "token", "%s holds no API key that can be sent", from).WithHint("put one API key there, as holdfast key create prints it")
	}
	return token, nil
}

// sendable reports whether a token can be sent in an HTTP header.
func sendable(token string) bool {
	return len(token) <= maxKey && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

type contextUseCmd struct {
	Name string `arg:"" help:"The context; local is the server of the data directory."`
}

// Run makes a context the current one.
func (c *contextUseCmd) Run(e *env) error {
	all, err := e.readContexts()
	if err != nil {
		return err
	}
	if _, ok := all.Contexts[c.Name]; !ok && c.Name != thisMachine {
		return unknownContext(c.Name)
	}
	if all.Current = c.Name; c.Name == thisMachine {
		all.Current = ""
	}
	if err := e.writeContexts(all); err != nil {
		return err
	}
	if e.getenv("HOLDFAST_URL") != "" {
		e.note("HOLDFAST_URL is set and overrides the context: %s", e.getenv("HOLDFAST_URL"))
	}
	return e.say(map[string]any{"current": c.Name}, "commands talk to %s", c.Name)
}

type contextRmCmd struct {
	Names []string `arg:"" name:"name" help:"The contexts."`
}

// Run removes contexts, and the keys that context add stored for them.
func (c *contextRmCmd) Run(e *env) error {
	all, err := e.readContexts()
	if err != nil {
		return err
	}
	for _, name := range c.Names {
		if _, ok := all.Contexts[name]; !ok {
			return unknownContext(name)
		}
	}
	for _, name := range c.Names {
		delete(all.Contexts, name)
		if all.Current == name {
			all.Current = ""
		}
	}
	if err := e.writeContexts(all); err != nil {
		return err
	}
	for _, name := range c.Names {
		kept := filepath.Join(filepath.Dir(e.contextsFile()), "token-"+name)
		if err := os.Remove(kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return holdfast.Errorf(holdfast.KindUnavailable, "context", "the key file of the context %s cannot be removed: %w", name, err).WithHint("rm %s", word(kept))
		}
	}
	return e.say(map[string]any{"removed": c.Names}, "%s", fmt.Sprintf("forgot %s", strings.Join(c.Names, ", ")))
}
