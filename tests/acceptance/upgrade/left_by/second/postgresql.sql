SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.access_state (
    id integer NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT ck_access_state_single CHECK ((id = 1))
);
CREATE TABLE public.account (
    id bigint NOT NULL,
    company_id bigint NOT NULL,
    email character varying(255) NOT NULL,
    password_hash character varying(255) NOT NULL,
    name character varying(255),
    fonction character varying(255),
    active boolean NOT NULL,
    permission json NOT NULL,
    create_on timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.account_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.account_id_seq OWNED BY public.account.id;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.application (
    id bigint NOT NULL,
    company_id bigint NOT NULL,
    name character varying(255) NOT NULL,
    type character varying(64) NOT NULL,
    api_key character varying(255) NOT NULL,
    api_id character varying(255) NOT NULL,
    active boolean NOT NULL,
    expire_on timestamp with time zone,
    expire_offset integer DEFAULT 0 NOT NULL
);
CREATE SEQUENCE public.application_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.application_id_seq OWNED BY public.application.id;
CREATE TABLE public.audit_entry (
    id bigint NOT NULL,
    company_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    account_id bigint NOT NULL,
    email character varying(255) NOT NULL,
    request character varying(64) NOT NULL,
    action character varying(16) NOT NULL,
    kind character varying(16) NOT NULL,
    ref bigint NOT NULL,
    before json NOT NULL,
    after json NOT NULL
);
CREATE SEQUENCE public.audit_entry_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_entry_id_seq OWNED BY public.audit_entry.id;
CREATE TABLE public.authentication_trace (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
)
PARTITION BY RANGE (create_on);
CREATE TABLE public.authentication_trace_20261023 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261024 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261025 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261026 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261027 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261028 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261029 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261030 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261031 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261101 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261102 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261103 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261104 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261105 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261106 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261107 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261108 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261109 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261110 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261111 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261112 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261113 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261114 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261115 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261116 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261117 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261118 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261119 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261120 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261121 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261122 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261123 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261124 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_20261125 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.authentication_trace_default (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    application_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
ALTER TABLE public.authentication_trace ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.authentication_trace_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.beacon (
    id bigint NOT NULL,
    venue_id bigint NOT NULL,
    name character varying(255) NOT NULL,
    uuid character varying(36) NOT NULL,
    major integer NOT NULL,
    minor integer NOT NULL,
    active boolean NOT NULL,
    proximity character varying(16) NOT NULL,
    x integer,
    y integer,
    color character varying(64),
    deleted_at timestamp with time zone,
    CONSTRAINT ck_beacon_major CHECK (((major >= 0) AND (major <= 65535))),
    CONSTRAINT ck_beacon_minor CHECK (((minor >= 0) AND (minor <= 65535))),
    CONSTRAINT ck_beacon_proximity CHECK (((proximity)::text = ANY ((ARRAY['immediate'::character varying, 'near'::character varying, 'far'::character varying])::text[])))
);
CREATE SEQUENCE public.beacon_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.beacon_id_seq OWNED BY public.beacon.id;
CREATE TABLE public.beacon_tag (
    beacon_id bigint NOT NULL,
    tag_id bigint NOT NULL
);
CREATE TABLE public.campaign (
    id bigint NOT NULL,
    venue_id bigint NOT NULL,
    name character varying(255) NOT NULL,
    hash character varying(255),
    push text NOT NULL,
    title text NOT NULL,
    format character varying(16) NOT NULL,
    template text,
    url text,
    html text,
    background character varying(64),
    color character varying(64),
    cache character varying(64) NOT NULL,
    delay bigint NOT NULL,
    start_at timestamp with time zone NOT NULL,
    start_offset integer NOT NULL,
    end_at timestamp with time zone NOT NULL,
    end_offset integer NOT NULL,
    start_minute integer NOT NULL,
    end_minute integer NOT NULL,
    active boolean NOT NULL,
    weekdays integer NOT NULL,
    nfcs json NOT NULL,
    qrcodes json NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT ck_campaign_end_minute CHECK (((end_minute >= 0) AND (end_minute <= 1440))),
    CONSTRAINT ck_campaign_format CHECK (((format)::text = ANY ((ARRAY['template'::character varying, 'url'::character varying, 'html'::character varying, 'connector'::character varying])::text[]))),
    CONSTRAINT ck_campaign_start_minute CHECK (((start_minute >= 0) AND (start_minute <= 1439))),
    CONSTRAINT ck_campaign_weekdays CHECK (((weekdays >= 0) AND (weekdays <= 127)))
);
CREATE TABLE public.campaign_beacon (
    campaign_id bigint NOT NULL,
    beacon_id bigint NOT NULL
);
CREATE TABLE public.campaign_geofence (
    campaign_id bigint NOT NULL,
    geofence_id bigint NOT NULL
);
CREATE SEQUENCE public.campaign_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.campaign_id_seq OWNED BY public.campaign.id;
CREATE TABLE public.campaign_tag (
    campaign_id bigint NOT NULL,
    tag_id bigint NOT NULL
);
CREATE TABLE public.company (
    id bigint NOT NULL,
    name character varying(255) NOT NULL,
    image text,
    description text,
    active boolean NOT NULL,
    create_on timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.company_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.company_id_seq OWNED BY public.company.id;
CREATE TABLE public.connector (
    id bigint NOT NULL,
    company_id bigint NOT NULL,
    name character varying(255) NOT NULL,
    url text NOT NULL,
    method character varying(8) NOT NULL,
    auth character varying(8) NOT NULL,
    parameters text NOT NULL,
    secret text,
    CONSTRAINT ck_connector_auth CHECK (((auth)::text = ANY ((ARRAY['header'::character varying, 'get'::character varying])::text[]))),
    CONSTRAINT ck_connector_method CHECK (((method)::text = ANY ((ARRAY['GET'::character varying, 'POST'::character varying])::text[])))
);
CREATE SEQUENCE public.connector_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.connector_id_seq OWNED BY public.connector.id;
CREATE TABLE public.detection_trace (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
)
PARTITION BY RANGE (create_on);
CREATE TABLE public.detection_trace_20261023 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261024 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261025 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261026 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261027 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261028 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261029 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261030 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261031 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261101 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261102 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261103 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261104 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261105 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261106 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261107 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261108 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261109 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261110 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261111 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261112 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261113 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261114 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261115 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261116 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261117 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261118 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261119 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261120 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261121 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261122 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261123 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261124 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_20261125 (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
CREATE TABLE public.detection_trace_default (
    id bigint NOT NULL,
    device_id bigint NOT NULL,
    venue_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    ip text
);
ALTER TABLE public.detection_trace ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.detection_trace_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.device (
    id bigint NOT NULL,
    company_id bigint NOT NULL,
    udid character varying(255) NOT NULL,
    nb_beacon bigint NOT NULL,
    nb_campaign bigint NOT NULL,
    token_push text,
    name character varying(255),
    version character varying(255),
    model character varying(255),
    id_connector bigint,
    test boolean NOT NULL,
    create_on timestamp with time zone NOT NULL,
    update_on timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.device_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.device_id_seq OWNED BY public.device.id;
CREATE TABLE public.geofence (
    id bigint NOT NULL,
    venue_id bigint NOT NULL,
    name character varying(255) NOT NULL,
    longitude double precision NOT NULL,
    latitude double precision NOT NULL,
    radius integer NOT NULL,
    active boolean NOT NULL,
    deleted_at timestamp with time zone
);
CREATE SEQUENCE public.geofence_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.geofence_id_seq OWNED BY public.geofence.id;
CREATE TABLE public.index_state (
    id integer NOT NULL,
    catalog character varying(36) NOT NULL,
    generation bigint NOT NULL,
    places json,
    swept_at timestamp with time zone,
    CONSTRAINT ck_index_state_single CHECK ((id = 1))
);
CREATE TABLE public.outbox (
    id bigint NOT NULL,
    kind character varying(16) NOT NULL,
    ref character varying(64) NOT NULL
);
CREATE SEQUENCE public.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.outbox_id_seq OWNED BY public.outbox.id;
CREATE TABLE public.presence (
    device_id bigint NOT NULL,
    beacon_id bigint NOT NULL,
    status character varying(16) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    recorded_on timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.reception (
    notification uuid NOT NULL,
    device_id bigint NOT NULL,
    campaign_id bigint NOT NULL,
    create_on timestamp with time zone NOT NULL,
    recorded_on timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.recorder_offset (
    topic character varying(255) NOT NULL,
    partition integer NOT NULL,
    next_offset bigint NOT NULL,
    topic_id character varying(32)
);
CREATE TABLE public.recorder_past (
    topic character varying(255) NOT NULL,
    ended_on timestamp with time zone NOT NULL
);
CREATE TABLE public.session (
    id bigint NOT NULL,
    account_id bigint NOT NULL,
    token_hash character varying(64) NOT NULL,
    create_on timestamp with time zone NOT NULL,
    valid timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.session_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.session_id_seq OWNED BY public.session.id;
CREATE TABLE public.statistic (
    day date NOT NULL,
    kind character varying(16) NOT NULL,
    ref bigint NOT NULL,
    venue_id bigint NOT NULL,
    detections bigint NOT NULL,
    devices bigint NOT NULL,
    notifications bigint NOT NULL,
    CONSTRAINT ck_statistic_kind CHECK (((kind)::text = ANY ((ARRAY['venue'::character varying, 'beacon'::character varying, 'campaign'::character varying])::text[])))
);
CREATE TABLE public.statistic_device (
    day date NOT NULL,
    kind character varying(16) NOT NULL,
    ref bigint NOT NULL,
    device_id bigint NOT NULL
);
CREATE TABLE public.tag (
    id bigint NOT NULL,
    company_id bigint NOT NULL,
    name character varying(255) NOT NULL
);
CREATE SEQUENCE public.tag_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.tag_id_seq OWNED BY public.tag.id;
CREATE TABLE public.venue (
    id bigint NOT NULL,
    company_id bigint NOT NULL,
    name character varying(255) NOT NULL,
    address text NOT NULL,
    active boolean NOT NULL,
    width integer,
    height integer,
    image text,
    time_zone character varying(64),
    deleted_at timestamp with time zone
);
CREATE SEQUENCE public.venue_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.venue_id_seq OWNED BY public.venue.id;
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261023 FOR VALUES FROM ('2026-10-23 00:00:00+00') TO ('2026-10-24 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261024 FOR VALUES FROM ('2026-10-24 00:00:00+00') TO ('2026-10-25 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261025 FOR VALUES FROM ('2026-10-25 00:00:00+00') TO ('2026-10-26 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261026 FOR VALUES FROM ('2026-10-26 00:00:00+00') TO ('2026-10-27 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261027 FOR VALUES FROM ('2026-10-27 00:00:00+00') TO ('2026-10-28 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261028 FOR VALUES FROM ('2026-10-28 00:00:00+00') TO ('2026-10-29 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261029 FOR VALUES FROM ('2026-10-29 00:00:00+00') TO ('2026-10-30 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261030 FOR VALUES FROM ('2026-10-30 00:00:00+00') TO ('2026-10-31 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261031 FOR VALUES FROM ('2026-10-31 00:00:00+00') TO ('2026-11-01 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261101 FOR VALUES FROM ('2026-11-01 00:00:00+00') TO ('2026-11-02 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261102 FOR VALUES FROM ('2026-11-02 00:00:00+00') TO ('2026-11-03 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261103 FOR VALUES FROM ('2026-11-03 00:00:00+00') TO ('2026-11-04 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261104 FOR VALUES FROM ('2026-11-04 00:00:00+00') TO ('2026-11-05 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261105 FOR VALUES FROM ('2026-11-05 00:00:00+00') TO ('2026-11-06 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261106 FOR VALUES FROM ('2026-11-06 00:00:00+00') TO ('2026-11-07 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261107 FOR VALUES FROM ('2026-11-07 00:00:00+00') TO ('2026-11-08 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261108 FOR VALUES FROM ('2026-11-08 00:00:00+00') TO ('2026-11-09 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261109 FOR VALUES FROM ('2026-11-09 00:00:00+00') TO ('2026-11-10 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261110 FOR VALUES FROM ('2026-11-10 00:00:00+00') TO ('2026-11-11 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261111 FOR VALUES FROM ('2026-11-11 00:00:00+00') TO ('2026-11-12 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261112 FOR VALUES FROM ('2026-11-12 00:00:00+00') TO ('2026-11-13 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261113 FOR VALUES FROM ('2026-11-13 00:00:00+00') TO ('2026-11-14 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261114 FOR VALUES FROM ('2026-11-14 00:00:00+00') TO ('2026-11-15 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261115 FOR VALUES FROM ('2026-11-15 00:00:00+00') TO ('2026-11-16 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261116 FOR VALUES FROM ('2026-11-16 00:00:00+00') TO ('2026-11-17 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261117 FOR VALUES FROM ('2026-11-17 00:00:00+00') TO ('2026-11-18 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261118 FOR VALUES FROM ('2026-11-18 00:00:00+00') TO ('2026-11-19 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261119 FOR VALUES FROM ('2026-11-19 00:00:00+00') TO ('2026-11-20 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261120 FOR VALUES FROM ('2026-11-20 00:00:00+00') TO ('2026-11-21 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261121 FOR VALUES FROM ('2026-11-21 00:00:00+00') TO ('2026-11-22 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261122 FOR VALUES FROM ('2026-11-22 00:00:00+00') TO ('2026-11-23 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261123 FOR VALUES FROM ('2026-11-23 00:00:00+00') TO ('2026-11-24 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261124 FOR VALUES FROM ('2026-11-24 00:00:00+00') TO ('2026-11-25 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_20261125 FOR VALUES FROM ('2026-11-25 00:00:00+00') TO ('2026-11-26 00:00:00+00');
ALTER TABLE ONLY public.authentication_trace ATTACH PARTITION public.authentication_trace_default DEFAULT;
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261023 FOR VALUES FROM ('2026-10-23 00:00:00+00') TO ('2026-10-24 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261024 FOR VALUES FROM ('2026-10-24 00:00:00+00') TO ('2026-10-25 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261025 FOR VALUES FROM ('2026-10-25 00:00:00+00') TO ('2026-10-26 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261026 FOR VALUES FROM ('2026-10-26 00:00:00+00') TO ('2026-10-27 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261027 FOR VALUES FROM ('2026-10-27 00:00:00+00') TO ('2026-10-28 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261028 FOR VALUES FROM ('2026-10-28 00:00:00+00') TO ('2026-10-29 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261029 FOR VALUES FROM ('2026-10-29 00:00:00+00') TO ('2026-10-30 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261030 FOR VALUES FROM ('2026-10-30 00:00:00+00') TO ('2026-10-31 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261031 FOR VALUES FROM ('2026-10-31 00:00:00+00') TO ('2026-11-01 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261101 FOR VALUES FROM ('2026-11-01 00:00:00+00') TO ('2026-11-02 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261102 FOR VALUES FROM ('2026-11-02 00:00:00+00') TO ('2026-11-03 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261103 FOR VALUES FROM ('2026-11-03 00:00:00+00') TO ('2026-11-04 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261104 FOR VALUES FROM ('2026-11-04 00:00:00+00') TO ('2026-11-05 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261105 FOR VALUES FROM ('2026-11-05 00:00:00+00') TO ('2026-11-06 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261106 FOR VALUES FROM ('2026-11-06 00:00:00+00') TO ('2026-11-07 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261107 FOR VALUES FROM ('2026-11-07 00:00:00+00') TO ('2026-11-08 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261108 FOR VALUES FROM ('2026-11-08 00:00:00+00') TO ('2026-11-09 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261109 FOR VALUES FROM ('2026-11-09 00:00:00+00') TO ('2026-11-10 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261110 FOR VALUES FROM ('2026-11-10 00:00:00+00') TO ('2026-11-11 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261111 FOR VALUES FROM ('2026-11-11 00:00:00+00') TO ('2026-11-12 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261112 FOR VALUES FROM ('2026-11-12 00:00:00+00') TO ('2026-11-13 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261113 FOR VALUES FROM ('2026-11-13 00:00:00+00') TO ('2026-11-14 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261114 FOR VALUES FROM ('2026-11-14 00:00:00+00') TO ('2026-11-15 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261115 FOR VALUES FROM ('2026-11-15 00:00:00+00') TO ('2026-11-16 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261116 FOR VALUES FROM ('2026-11-16 00:00:00+00') TO ('2026-11-17 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261117 FOR VALUES FROM ('2026-11-17 00:00:00+00') TO ('2026-11-18 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261118 FOR VALUES FROM ('2026-11-18 00:00:00+00') TO ('2026-11-19 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261119 FOR VALUES FROM ('2026-11-19 00:00:00+00') TO ('2026-11-20 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261120 FOR VALUES FROM ('2026-11-20 00:00:00+00') TO ('2026-11-21 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261121 FOR VALUES FROM ('2026-11-21 00:00:00+00') TO ('2026-11-22 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261122 FOR VALUES FROM ('2026-11-22 00:00:00+00') TO ('2026-11-23 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261123 FOR VALUES FROM ('2026-11-23 00:00:00+00') TO ('2026-11-24 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261124 FOR VALUES FROM ('2026-11-24 00:00:00+00') TO ('2026-11-25 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_20261125 FOR VALUES FROM ('2026-11-25 00:00:00+00') TO ('2026-11-26 00:00:00+00');
ALTER TABLE ONLY public.detection_trace ATTACH PARTITION public.detection_trace_default DEFAULT;
ALTER TABLE ONLY public.account ALTER COLUMN id SET DEFAULT nextval('public.account_id_seq'::regclass);
ALTER TABLE ONLY public.application ALTER COLUMN id SET DEFAULT nextval('public.application_id_seq'::regclass);
ALTER TABLE ONLY public.audit_entry ALTER COLUMN id SET DEFAULT nextval('public.audit_entry_id_seq'::regclass);
ALTER TABLE ONLY public.beacon ALTER COLUMN id SET DEFAULT nextval('public.beacon_id_seq'::regclass);
ALTER TABLE ONLY public.campaign ALTER COLUMN id SET DEFAULT nextval('public.campaign_id_seq'::regclass);
ALTER TABLE ONLY public.company ALTER COLUMN id SET DEFAULT nextval('public.company_id_seq'::regclass);
ALTER TABLE ONLY public.connector ALTER COLUMN id SET DEFAULT nextval('public.connector_id_seq'::regclass);
ALTER TABLE ONLY public.device ALTER COLUMN id SET DEFAULT nextval('public.device_id_seq'::regclass);
ALTER TABLE ONLY public.geofence ALTER COLUMN id SET DEFAULT nextval('public.geofence_id_seq'::regclass);
ALTER TABLE ONLY public.outbox ALTER COLUMN id SET DEFAULT nextval('public.outbox_id_seq'::regclass);
ALTER TABLE ONLY public.session ALTER COLUMN id SET DEFAULT nextval('public.session_id_seq'::regclass);
ALTER TABLE ONLY public.tag ALTER COLUMN id SET DEFAULT nextval('public.tag_id_seq'::regclass);
ALTER TABLE ONLY public.venue ALTER COLUMN id SET DEFAULT nextval('public.venue_id_seq'::regclass);
INSERT INTO public.access_state VALUES (1, 0);
INSERT INTO public.account VALUES (1, 1, 'owner@shop.example', '$argon2id$v=19$m=65536,t=3,p=4$MUBa9sSvpdOfa0+jeqfs9Q$QfeMlLIu8lNRok5v72LHv7pUSr6jKpSH5YvoF9B1mps', NULL, NULL, true, '{"profile": 2, "campaign": 2, "device": 2, "analytic": 2, "region": 2, "beacon": 2, "realtime": 2, "nfc": 2, "qrcode": 2, "tag": 2, "connector": 2, "fidelity": 2, "form": 2, "crm": 2}', '2026-11-22 05:30:53.766137+00');
INSERT INTO public.alembic_version VALUES ('0009');
INSERT INTO public.application VALUES (1, 1, 'Shop', 'android', 'shop-key', '', true, NULL, 0);
INSERT INTO public.authentication_trace_20261122 VALUES (1, 2, 1, '2026-11-22 05:30:57.206+00', NULL);
INSERT INTO public.authentication_trace_20261122 VALUES (2, 3, 1, '2026-11-22 05:30:57.209+00', NULL);
INSERT INTO public.authentication_trace_20261122 VALUES (3, 4, 1, '2026-11-22 05:30:57.211+00', NULL);
INSERT INTO public.beacon VALUES (1, 1, 'Door', 'f7826da6-4fa2-4e98-8024-bc5b71e0893e', 1, 1, true, 'far', NULL, NULL, NULL, NULL);
INSERT INTO public.campaign VALUES (1, 1, 'Welcome', NULL, 'Welcome', 'Welcome', 'template', '<p>hello</p>', NULL, NULL, NULL, NULL, 'day', 86400, '2020-01-01 00:00:00+00', 0, '2099-12-31 00:00:00+00', 0, 0, 1440, true, 127, '[]', '[]', NULL);
INSERT INTO public.campaign VALUES (2, 1, 'Ask', NULL, 'Ask', 'Ask', 'connector', NULL, NULL, NULL, NULL, NULL, 'day', 86400, '2020-01-01 00:00:00+00', 0, '2099-12-31 00:00:00+00', 0, 0, 1440, true, 127, '[]', '[]', NULL);
INSERT INTO public.campaign_beacon VALUES (1, 1);
INSERT INTO public.campaign_beacon VALUES (2, 1);
INSERT INTO public.company VALUES (1, 'Shop', NULL, NULL, true, '2026-11-22 05:30:53.766137+00');
INSERT INTO public.connector VALUES (1, 1, 'Shop''s service', 'http://127.0.0.1:18999/ask', 'POST', 'header', 'gAAAAABrAn4NT9IRShI8HDJGmcHaim5_6h59bh2mz0Ku87fsv0hk0GZ_3cCErlLdwqmcwl5n7vIxu9DWa65y1UzcDoPkma0tdPefoW3DWMiKNU7XirfqbqtDm39n4QplDQZa65d11-CN', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (1, 5, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (2, 6, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (3, 7, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (4, 2, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (5, 3, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (6, 4, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (7, 11, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.detection_trace_20261122 VALUES (8, 12, 1, 1, 'near', '2026-11-22 05:30:57.114+00', NULL);
INSERT INTO public.device VALUES (1, 1, 'known', 0, 0, NULL, NULL, NULL, NULL, NULL, true, '2026-11-22 05:30:53.766137+00', '2026-11-22 05:30:53.766137+00');
INSERT INTO public.device VALUES (2, 1, 'device 0', 1, 2, 'of device 0', 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.262721+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.device VALUES (3, 1, 'device 1', 1, 2, 'of device 1', 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.262721+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.device VALUES (4, 1, 'device 2', 1, 2, 'of device 2', 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.262721+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.device VALUES (11, 1, 'device 6', 1, 2, NULL, 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.241296+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.device VALUES (12, 1, 'device 7', 1, 2, NULL, 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.241296+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.device VALUES (5, 1, 'device 3', 1, 2, NULL, 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.245188+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.device VALUES (6, 1, 'device 4', 1, 2, NULL, 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.245188+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.device VALUES (7, 1, 'device 5', 1, 2, NULL, 'android', NULL, NULL, NULL, false, '2026-11-22 05:30:57.245188+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.index_state VALUES (1, '96bc3e90-4f5e-4a4e-9939-2cacd5b1b2fb', 1, '[[1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0]]', '2026-11-22 05:30:56.527354+00');
INSERT INTO public.reception VALUES ('3e311b3f-8332-55b1-ad98-8070940e9d73', 2, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.391839+00');
INSERT INTO public.reception VALUES ('d2db0b12-c182-5e3e-8039-f70e85e85bd3', 5, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.477443+00');
INSERT INTO public.reception VALUES ('3576610f-d03c-53c2-809f-43bf84eef2f8', 4, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('37b31288-ab1d-5ba4-8a02-fd0e65a60a42', 2, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('3d417436-d9b6-5833-b014-37082a03e3ca', 12, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('7a468e4f-25f4-5d6f-a429-d490ff2d08f0', 4, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('85599fab-9fa6-51be-bdc4-a6ca329d4864', 3, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('9f62204d-98b8-5410-8734-bd6922f8f48c', 12, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('cbe53761-c26c-57f8-bd55-1fe67e5b7f7e', 3, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('e067aec0-dbbc-57c4-9193-47d5a1204cfa', 11, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('f8e5a06c-a44e-5be2-a849-69a2223357d6', 11, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.513988+00');
INSERT INTO public.reception VALUES ('3eae2bea-d511-5125-adf6-2a52c8dc35be', 6, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.reception VALUES ('4e7c33a7-aaff-5695-9a72-033f1571ac52', 7, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.reception VALUES ('56deb352-863c-5c21-a45f-a57cd0737fc1', 7, 1, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.reception VALUES ('5ee7dc24-2282-5f35-ba63-84a95c1bea5f', 6, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.reception VALUES ('adcd2b9b-db14-5bc2-a70b-9897743ffef8', 5, 2, '2026-11-22 05:30:57+00', '2026-11-22 05:30:57.532423+00');
INSERT INTO public.recorder_offset VALUES ('was.authentications', 0, 0, 'da1bcc9b5cde43f29530e5d0f8781d27');
INSERT INTO public.recorder_offset VALUES ('was.detections', 1, 6, '99378c05de6c4ce89a12ae59c06a871b');
INSERT INTO public.recorder_offset VALUES ('was.detections', 0, 5, '99378c05de6c4ce89a12ae59c06a871b');
INSERT INTO public.recorder_offset VALUES ('was.authentications', 1, 3, 'da1bcc9b5cde43f29530e5d0f8781d27');
INSERT INTO public.recorder_offset VALUES ('was.notifications', 1, 10, '7e65712676e9413d8202881d5a7b39ef');
INSERT INTO public.recorder_offset VALUES ('was.notifications', 0, 6, '7e65712676e9413d8202881d5a7b39ef');
INSERT INTO public.statistic VALUES ('2026-11-22', 'beacon', 1, 1, 8, 8, 16);
INSERT INTO public.statistic VALUES ('2026-11-22', 'campaign', 1, 1, 0, 8, 8);
INSERT INTO public.statistic VALUES ('2026-11-22', 'campaign', 2, 1, 0, 8, 8);
INSERT INTO public.statistic VALUES ('2026-11-22', 'venue', 1, 1, 8, 8, 16);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 5);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 6);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 7);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 5);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 6);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 7);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 2);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 3);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 4);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 11);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'beacon', 1, 12);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 2);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 3);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 4);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 11);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'venue', 1, 12);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 2);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 5);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 3);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 4);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 11);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 12);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 2);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 3);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 4);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 11);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 12);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 6);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 1, 7);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 5);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 6);
INSERT INTO public.statistic_device VALUES ('2026-11-22', 'campaign', 2, 7);
INSERT INTO public.venue VALUES (1, 1, 'Hall', '1 Square', true, NULL, NULL, NULL, 'UTC', NULL);
SELECT pg_catalog.setval('public.account_id_seq', 1, true);
SELECT pg_catalog.setval('public.application_id_seq', 1, true);
SELECT pg_catalog.setval('public.audit_entry_id_seq', 1, false);
SELECT pg_catalog.setval('public.authentication_trace_id_seq', 3, true);
SELECT pg_catalog.setval('public.beacon_id_seq', 1, true);
SELECT pg_catalog.setval('public.campaign_id_seq', 2, true);
SELECT pg_catalog.setval('public.company_id_seq', 1, true);
SELECT pg_catalog.setval('public.connector_id_seq', 1, true);
SELECT pg_catalog.setval('public.detection_trace_id_seq', 8, true);
SELECT pg_catalog.setval('public.device_id_seq', 22, true);
SELECT pg_catalog.setval('public.geofence_id_seq', 1, false);
SELECT pg_catalog.setval('public.outbox_id_seq', 4, true);
SELECT pg_catalog.setval('public.session_id_seq', 1, false);
SELECT pg_catalog.setval('public.tag_id_seq', 1, false);
SELECT pg_catalog.setval('public.venue_id_seq', 1, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.access_state
    ADD CONSTRAINT pk_access_state PRIMARY KEY (id);
ALTER TABLE ONLY public.account
    ADD CONSTRAINT pk_account PRIMARY KEY (id);
ALTER TABLE ONLY public.application
    ADD CONSTRAINT pk_application PRIMARY KEY (id);
ALTER TABLE ONLY public.audit_entry
    ADD CONSTRAINT pk_audit_entry PRIMARY KEY (id);
ALTER TABLE ONLY public.beacon
    ADD CONSTRAINT pk_beacon PRIMARY KEY (id);
ALTER TABLE ONLY public.beacon_tag
    ADD CONSTRAINT pk_beacon_tag PRIMARY KEY (beacon_id, tag_id);
ALTER TABLE ONLY public.campaign
    ADD CONSTRAINT pk_campaign PRIMARY KEY (id);
ALTER TABLE ONLY public.campaign_beacon
    ADD CONSTRAINT pk_campaign_beacon PRIMARY KEY (campaign_id, beacon_id);
ALTER TABLE ONLY public.campaign_geofence
    ADD CONSTRAINT pk_campaign_geofence PRIMARY KEY (campaign_id, geofence_id);
ALTER TABLE ONLY public.campaign_tag
    ADD CONSTRAINT pk_campaign_tag PRIMARY KEY (campaign_id, tag_id);
ALTER TABLE ONLY public.company
    ADD CONSTRAINT pk_company PRIMARY KEY (id);
ALTER TABLE ONLY public.connector
    ADD CONSTRAINT pk_connector PRIMARY KEY (id);
ALTER TABLE ONLY public.device
    ADD CONSTRAINT pk_device PRIMARY KEY (id);
ALTER TABLE ONLY public.geofence
    ADD CONSTRAINT pk_geofence PRIMARY KEY (id);
ALTER TABLE ONLY public.index_state
    ADD CONSTRAINT pk_index_state PRIMARY KEY (id);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT pk_outbox PRIMARY KEY (id);
ALTER TABLE ONLY public.presence
    ADD CONSTRAINT pk_presence PRIMARY KEY (device_id, beacon_id);
ALTER TABLE ONLY public.reception
    ADD CONSTRAINT pk_reception PRIMARY KEY (notification);
ALTER TABLE ONLY public.recorder_offset
    ADD CONSTRAINT pk_recorder_offset PRIMARY KEY (topic, partition);
ALTER TABLE ONLY public.recorder_past
    ADD CONSTRAINT pk_recorder_past PRIMARY KEY (topic);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT pk_session PRIMARY KEY (id);
ALTER TABLE ONLY public.statistic
    ADD CONSTRAINT pk_statistic PRIMARY KEY (day, kind, ref);
ALTER TABLE ONLY public.statistic_device
    ADD CONSTRAINT pk_statistic_device PRIMARY KEY (day, kind, ref, device_id);
ALTER TABLE ONLY public.tag
    ADD CONSTRAINT pk_tag PRIMARY KEY (id);
ALTER TABLE ONLY public.venue
    ADD CONSTRAINT pk_venue PRIMARY KEY (id);
ALTER TABLE ONLY public.account
    ADD CONSTRAINT uq_account_email UNIQUE (email);
ALTER TABLE ONLY public.application
    ADD CONSTRAINT uq_application_api_key UNIQUE (api_key);
ALTER TABLE ONLY public.company
    ADD CONSTRAINT uq_company_name UNIQUE (name);
ALTER TABLE ONLY public.connector
    ADD CONSTRAINT uq_connector_company_id UNIQUE (company_id);
ALTER TABLE ONLY public.device
    ADD CONSTRAINT uq_device_company_id_udid UNIQUE (company_id, udid);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT uq_session_token_hash UNIQUE (token_hash);
ALTER TABLE ONLY public.tag
    ADD CONSTRAINT uq_tag_company_id_name UNIQUE (company_id, name);
CREATE INDEX ix_authentication_trace_device_id_create_on_id ON ONLY public.authentication_trace USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261023_device_id_create_on_id_idx ON public.authentication_trace_20261023 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261024_device_id_create_on_id_idx ON public.authentication_trace_20261024 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261025_device_id_create_on_id_idx ON public.authentication_trace_20261025 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261026_device_id_create_on_id_idx ON public.authentication_trace_20261026 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261027_device_id_create_on_id_idx ON public.authentication_trace_20261027 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261028_device_id_create_on_id_idx ON public.authentication_trace_20261028 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261029_device_id_create_on_id_idx ON public.authentication_trace_20261029 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261030_device_id_create_on_id_idx ON public.authentication_trace_20261030 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261031_device_id_create_on_id_idx ON public.authentication_trace_20261031 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261101_device_id_create_on_id_idx ON public.authentication_trace_20261101 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261102_device_id_create_on_id_idx ON public.authentication_trace_20261102 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261103_device_id_create_on_id_idx ON public.authentication_trace_20261103 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261104_device_id_create_on_id_idx ON public.authentication_trace_20261104 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261105_device_id_create_on_id_idx ON public.authentication_trace_20261105 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261106_device_id_create_on_id_idx ON public.authentication_trace_20261106 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261107_device_id_create_on_id_idx ON public.authentication_trace_20261107 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261108_device_id_create_on_id_idx ON public.authentication_trace_20261108 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261109_device_id_create_on_id_idx ON public.authentication_trace_20261109 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261110_device_id_create_on_id_idx ON public.authentication_trace_20261110 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261111_device_id_create_on_id_idx ON public.authentication_trace_20261111 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261112_device_id_create_on_id_idx ON public.authentication_trace_20261112 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261113_device_id_create_on_id_idx ON public.authentication_trace_20261113 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261114_device_id_create_on_id_idx ON public.authentication_trace_20261114 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261115_device_id_create_on_id_idx ON public.authentication_trace_20261115 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261116_device_id_create_on_id_idx ON public.authentication_trace_20261116 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261117_device_id_create_on_id_idx ON public.authentication_trace_20261117 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261118_device_id_create_on_id_idx ON public.authentication_trace_20261118 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261119_device_id_create_on_id_idx ON public.authentication_trace_20261119 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261120_device_id_create_on_id_idx ON public.authentication_trace_20261120 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261121_device_id_create_on_id_idx ON public.authentication_trace_20261121 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261122_device_id_create_on_id_idx ON public.authentication_trace_20261122 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261123_device_id_create_on_id_idx ON public.authentication_trace_20261123 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261124_device_id_create_on_id_idx ON public.authentication_trace_20261124 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_20261125_device_id_create_on_id_idx ON public.authentication_trace_20261125 USING btree (device_id, create_on, id);
CREATE INDEX authentication_trace_default_device_id_create_on_id_idx ON public.authentication_trace_default USING btree (device_id, create_on, id);
CREATE INDEX ix_detection_trace_device_id_create_on_id ON ONLY public.detection_trace USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261023_device_id_create_on_id_idx ON public.detection_trace_20261023 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261024_device_id_create_on_id_idx ON public.detection_trace_20261024 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261025_device_id_create_on_id_idx ON public.detection_trace_20261025 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261026_device_id_create_on_id_idx ON public.detection_trace_20261026 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261027_device_id_create_on_id_idx ON public.detection_trace_20261027 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261028_device_id_create_on_id_idx ON public.detection_trace_20261028 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261029_device_id_create_on_id_idx ON public.detection_trace_20261029 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261030_device_id_create_on_id_idx ON public.detection_trace_20261030 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261031_device_id_create_on_id_idx ON public.detection_trace_20261031 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261101_device_id_create_on_id_idx ON public.detection_trace_20261101 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261102_device_id_create_on_id_idx ON public.detection_trace_20261102 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261103_device_id_create_on_id_idx ON public.detection_trace_20261103 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261104_device_id_create_on_id_idx ON public.detection_trace_20261104 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261105_device_id_create_on_id_idx ON public.detection_trace_20261105 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261106_device_id_create_on_id_idx ON public.detection_trace_20261106 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261107_device_id_create_on_id_idx ON public.detection_trace_20261107 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261108_device_id_create_on_id_idx ON public.detection_trace_20261108 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261109_device_id_create_on_id_idx ON public.detection_trace_20261109 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261110_device_id_create_on_id_idx ON public.detection_trace_20261110 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261111_device_id_create_on_id_idx ON public.detection_trace_20261111 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261112_device_id_create_on_id_idx ON public.detection_trace_20261112 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261113_device_id_create_on_id_idx ON public.detection_trace_20261113 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261114_device_id_create_on_id_idx ON public.detection_trace_20261114 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261115_device_id_create_on_id_idx ON public.detection_trace_20261115 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261116_device_id_create_on_id_idx ON public.detection_trace_20261116 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261117_device_id_create_on_id_idx ON public.detection_trace_20261117 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261118_device_id_create_on_id_idx ON public.detection_trace_20261118 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261119_device_id_create_on_id_idx ON public.detection_trace_20261119 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261120_device_id_create_on_id_idx ON public.detection_trace_20261120 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261121_device_id_create_on_id_idx ON public.detection_trace_20261121 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261122_device_id_create_on_id_idx ON public.detection_trace_20261122 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261123_device_id_create_on_id_idx ON public.detection_trace_20261123 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261124_device_id_create_on_id_idx ON public.detection_trace_20261124 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_20261125_device_id_create_on_id_idx ON public.detection_trace_20261125 USING btree (device_id, create_on, id);
CREATE INDEX detection_trace_default_device_id_create_on_id_idx ON public.detection_trace_default USING btree (device_id, create_on, id);
CREATE INDEX ix_account_company_id ON public.account USING btree (company_id);
CREATE INDEX ix_application_company_id ON public.application USING btree (company_id);
CREATE INDEX ix_audit_entry_company_id_id ON public.audit_entry USING btree (company_id, id);
CREATE INDEX ix_beacon_tag_tag_id ON public.beacon_tag USING btree (tag_id);
CREATE INDEX ix_beacon_venue_id ON public.beacon USING btree (venue_id);
CREATE INDEX ix_campaign_beacon_beacon_id ON public.campaign_beacon USING btree (beacon_id);
CREATE INDEX ix_campaign_geofence_geofence_id ON public.campaign_geofence USING btree (geofence_id);
CREATE INDEX ix_campaign_tag_tag_id ON public.campaign_tag USING btree (tag_id);
CREATE INDEX ix_campaign_venue_id ON public.campaign USING btree (venue_id);
CREATE INDEX ix_device_company_id_id ON public.device USING btree (company_id, id);
CREATE INDEX ix_geofence_venue_id ON public.geofence USING btree (venue_id);
CREATE INDEX ix_presence_recorded_on ON public.presence USING btree (recorded_on);
CREATE INDEX ix_reception_recorded_on ON public.reception USING btree (recorded_on);
CREATE INDEX ix_session_account_id ON public.session USING btree (account_id);
CREATE INDEX ix_session_valid ON public.session USING btree (valid);
CREATE INDEX ix_statistic_venue_id_day ON public.statistic USING btree (venue_id, day);
CREATE INDEX ix_venue_company_id_name ON public.venue USING btree (company_id, name);
CREATE UNIQUE INDEX uq_beacon_uuid_major_minor ON public.beacon USING btree (uuid, major, minor) WHERE (deleted_at IS NULL);
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261023_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261024_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261025_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261026_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261027_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261028_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261029_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261030_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261031_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261101_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261102_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261103_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261104_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261105_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261106_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261107_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261108_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261109_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261110_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261111_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261112_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261113_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261114_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261115_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261116_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261117_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261118_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261119_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261120_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261121_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261122_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261123_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261124_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_20261125_device_id_create_on_id_idx;
ALTER INDEX public.ix_authentication_trace_device_id_create_on_id ATTACH PARTITION public.authentication_trace_default_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261023_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261024_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261025_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261026_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261027_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261028_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261029_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261030_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261031_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261101_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261102_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261103_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261104_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261105_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261106_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261107_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261108_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261109_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261110_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261111_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261112_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261113_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261114_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261115_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261116_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261117_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261118_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261119_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261120_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261121_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261122_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261123_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261124_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_20261125_device_id_create_on_id_idx;
ALTER INDEX public.ix_detection_trace_device_id_create_on_id ATTACH PARTITION public.detection_trace_default_device_id_create_on_id_idx;
ALTER TABLE ONLY public.account
    ADD CONSTRAINT fk_account_company_id_company FOREIGN KEY (company_id) REFERENCES public.company(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.application
    ADD CONSTRAINT fk_application_company_id_company FOREIGN KEY (company_id) REFERENCES public.company(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.beacon_tag
    ADD CONSTRAINT fk_beacon_tag_beacon_id_beacon FOREIGN KEY (beacon_id) REFERENCES public.beacon(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.beacon_tag
    ADD CONSTRAINT fk_beacon_tag_tag_id_tag FOREIGN KEY (tag_id) REFERENCES public.tag(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.beacon
    ADD CONSTRAINT fk_beacon_venue_id_venue FOREIGN KEY (venue_id) REFERENCES public.venue(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.campaign_beacon
    ADD CONSTRAINT fk_campaign_beacon_beacon_id_beacon FOREIGN KEY (beacon_id) REFERENCES public.beacon(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.campaign_beacon
    ADD CONSTRAINT fk_campaign_beacon_campaign_id_campaign FOREIGN KEY (campaign_id) REFERENCES public.campaign(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.campaign_geofence
    ADD CONSTRAINT fk_campaign_geofence_campaign_id_campaign FOREIGN KEY (campaign_id) REFERENCES public.campaign(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.campaign_geofence
    ADD CONSTRAINT fk_campaign_geofence_geofence_id_geofence FOREIGN KEY (geofence_id) REFERENCES public.geofence(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.campaign_tag
    ADD CONSTRAINT fk_campaign_tag_campaign_id_campaign FOREIGN KEY (campaign_id) REFERENCES public.campaign(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.campaign_tag
    ADD CONSTRAINT fk_campaign_tag_tag_id_tag FOREIGN KEY (tag_id) REFERENCES public.tag(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.campaign
    ADD CONSTRAINT fk_campaign_venue_id_venue FOREIGN KEY (venue_id) REFERENCES public.venue(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.connector
    ADD CONSTRAINT fk_connector_company_id_company FOREIGN KEY (company_id) REFERENCES public.company(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.device
    ADD CONSTRAINT fk_device_company_id_company FOREIGN KEY (company_id) REFERENCES public.company(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.geofence
    ADD CONSTRAINT fk_geofence_venue_id_venue FOREIGN KEY (venue_id) REFERENCES public.venue(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.session
    ADD CONSTRAINT fk_session_account_id_account FOREIGN KEY (account_id) REFERENCES public.account(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.tag
    ADD CONSTRAINT fk_tag_company_id_company FOREIGN KEY (company_id) REFERENCES public.company(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.venue
    ADD CONSTRAINT fk_venue_company_id_company FOREIGN KEY (company_id) REFERENCES public.company(id) ON DELETE CASCADE;
