package testkit

import (
	"io"
	"net"
)

// Forward connects conn, a connection from a box, with the TCP address addr, and copies in both
// directions until both sides have ended.
func Forward(conn net.Conn, addr string) {
	defer conn.Close()
	up, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer up.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(up, conn)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, up)
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	<-done
}
