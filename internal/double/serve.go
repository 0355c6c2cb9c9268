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

// Config is what a double may be told. The zero value is fine.
type Config struct {
	// Record receives every request before it is answered, one at a time; nil
	// keeps them in memory for Requests.
	Record func(Request) error
	// Models are the names that GET /v1/models lists; nil is one of Anthropic's and "double".
	Models []string
	// Quirks are of the chat completions.
	Quirks []Quirk
	// Now defaults to time.Now, Rand to crypto/rand.
	Now  func() time.Time
	Rand io.Reader
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

// Listen listens on "host:port" or "unix:/path". A socket that is left over at
// the path is replaced, anything else there is a conflict.
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
			return nil, holdfast.Errorf(holdfast.KindConflict, "double", "%s exists and is not a socket", holdfast.Quote(path))
		}
		_ = os.Remove(path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "double", "cannot listen on %s: %w", holdfast.Quote(path), err).
			WithHint("the directory must exist and the path be shorter than 108 bytes")
	}
	return l, nil
}

// New is a double that answers through ServeHTTP only: it has no address, and nothing
// to close.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Models == nil {
		cfg.Models = []string{"claude-sonnet-5-5", "double"}
	}
	return &Server{cfg: cfg, model: scripted.New(), done: make(chan struct{})}
}

// Serve answers on l, which it owns, until Close.
func Serve(l net.Listener, cfg Config) *Server {
	s := New(cfg)
	s.addr = l.Addr()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // it ends by Close only
	}()
	return s
}

// URL is where the double answers: "http://host:port" or "unix:/path".
func (s *Server) URL() string {
	if s.addr.Network() == "unix" {
		return "unix:" + s.addr.String()
	}
	return "http://" + s.addr.String()
}

// Requests are the requests so far, in the order in which their bodies were
// complete. It is empty when Config.Record takes them.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.kept...)
}

// Close drops all connections and waits until the listener is closed.
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

// id makes a name as the API makes them: a prefix and something random.
func (s *Server) id(prefix string) string {
	var b [12]byte
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.ReadFull(s.cfg.Rand, b[:])
	return prefix + hex.EncodeToString(b[:])
}

// maxBody is the largest request of the real API.
const maxBody = 32 << 20

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := s.id("req_")
	w.Header().Set("request-id", id)
	if r.Method == http.MethodHead && r.URL.Path == "/" {
		return // clients warm their connection up
	}
	if r.Method == http.MethodGet && r.URL.Path == "/v1/models" {
		s.models(w) // no request to a model, and not recorded as one
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		refuse(w, &refusal{http.StatusRequestEntityTooLarge, "request_too_large", "the request is over 32 MB", 0})
		return
	case err != nil:
		return // the client went away
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

// models answers with a list that both kinds of clients read.
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
