package double

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

// Config configures a double. The zero value is valid.
type Config struct {
	// Record is called with each request before the request is answered, one call at a time. It is not called for
	// HEAD /, for GET /v1/models, and for requests whose body is incomplete or over maxBody. If it is nil, the
	// requests are stored, and Requests returns them.
	Record func(Request) error
	// Models are the names that GET /v1/models lists; nil means one of Anthropic's models and "double".
	Models []string
	// Quirks change the answers of the chat completions.
	Quirks []Quirk
}

// Server is a running double.
type Server struct {
	cfg   Config
	addr  net.Addr
	http  *http.Server
	model *scripted.Model
	done  chan struct{}

	mu   sync.Mutex
	kept []Request
}

// Listen listens on "host:port" or "unix:/path". It replaces an old socket at the path, and
// returns KindConflict for any other file there.
func Listen(addr string) (net.Listener, error) {
	path, unix := strings.CutPrefix(addr, "unix:")
	if !unix {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, "double", "cannot listen on %s: %w", holdfast.Quote(addr), err).
				WithHint("--listen 127.0.0.1:0 picks a free port")
		}
		return l, nil
	}
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().Type() != os.ModeSocket {
			return nil, holdfast.Errorf(holdfast.KindConflict, "double", "cannot listen on %s: the path exists and is not a socket", holdfast.Quote(path))
		}
		_ = os.Remove(path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "double", "cannot listen on %s: %w", holdfast.Quote(path), err).
			WithHint("the socket's directory must exist, and the path must be shorter than 108 bytes")
	}
	return l, nil
}

// New makes a double that answers only through ServeHTTP: it has no address and need not be closed.
func New(cfg Config) *Server {
	if cfg.Models == nil {
		cfg.Models = []string{"claude-sonnet-5-5", "double"}
	}
	return &Server{cfg: cfg, model: scripted.New(), done: make(chan struct{})}
}

// Serve returns a double that answers requests on l until Close. It takes ownership of l.
func Serve(l net.Listener, cfg Config) *Server {
	s := New(cfg)
	s.addr = l.Addr()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // Serve fails when Close closes l, which is no fault
	}()
	return s
}

// URL returns the address of the double: "http://host:port" or "unix:/path".
func (s *Server) URL() string {
	if s.addr.Network() == "unix" {
		return "unix:" + s.addr.String()
	}
	return "http://" + s.addr.String()
}

// Requests returns the requests that the double has stored, in the order in which their bodies were complete. It
// returns none if Config.Record is set.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.kept...)
}

// Close closes the listener and all connections of a double that Serve returned.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

func (s *Server) record(r Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Record != nil {
		return s.cfg.Record(r)
	}
	s.kept = append(s.kept, r)
	return nil
}

// id returns an id in the form of the API: a prefix and random characters.
func (s *Server) id(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never returns an error
	return prefix + hex.EncodeToString(b[:])
}

// maxBody is the most bytes of a request that the real API accepts.
const maxBody = 32 << 20

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := s.id("req_")
	w.Header().Set("request-id", id)
	if r.Method == http.MethodHead && r.URL.Path == "/" {
		return // clients send this request only to open the connection early
	}
	if r.Method == http.MethodGet && r.URL.Path == "/v1/models" {
		s.models(w) // no model answers this request, so it is not recorded
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		refuse(w, &refusal{http.StatusRequestEntityTooLarge, "request_too_large", "the request is over 32 MB", 0})
		return
	case err != nil:
		return // the body could not be read, because the client closed the connection
	}
	if err := s.record(s.describe(r, body)); err != nil {
		refuse(w, &refusal{http.StatusInternalServerError, "api_error", "cannot record the request: " + err.Error(), 0})
		return
	}
	switch {
	case r.URL.Path == "/v1/messages" && r.Method == http.MethodPost:
		s.messages(w, r, body)
	case r.URL.Path == "/v1/messages/count_tokens" && r.Method == http.MethodPost:
		s.countTokens(w, r, body)
	case r.URL.Path == "/v1/chat/completions" && r.Method == http.MethodPost:
		s.chat(w, r, body)
	case r.URL.Path == "/v1/messages" || r.URL.Path == "/v1/messages/count_tokens":
		refuse(w, &refusal{http.StatusMethodNotAllowed, "invalid_request_error", "Method Not Allowed", 0})
	default:
		refuse(w, &refusal{http.StatusNotFound, "not_found_error", "Not Found", 0})
	}
}

// models answers with a list of models that clients of both APIs understand.
func (s *Server) models(w http.ResponseWriter) {
	data := []map[string]string{}
	for _, name := range s.cfg.Models {
		data = append(data, map[string]string{"id": name, "object": "model", "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data, "has_more": false})
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request, body []byte) {
	req, no := parse(r.Header, body, false)
	if no != nil {
		refuse(w, no)
		return
	}
	writeJSON(w, http.StatusOK, map[string]int64{"input_tokens": scripted.Tokens(&req.Request)})
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request, body []byte) {
	req, no := parse(r.Header, body, true)
	if no != nil {
		refuse(w, no)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	a := &answer{w: w, id: s.id("msg_"), model: req.Model, input: scripted.Tokens(&req.Request)}
	if req.stream {
		a.stream(s.model.Stream(ctx, req.Request))
		return
	}
	a.whole(s.model.Stream(ctx, req.Request))
}
