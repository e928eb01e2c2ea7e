-- All stations with a position that may be shown, as one GeoJSON FeatureCollection.
select json_object(
    'type', 'FeatureCollection',
    'features', json_group_array(json_object(
        'type', 'Feature',
        'geometry', json_object('type', 'Point', 'coordinates', json_array(p.lon, p.lat)),
        'properties', json_object(
            'station_id', s.station_id, 'name', s.name, 'capacity', s.capacity
        )
    ))
)
from stations s
join station_positions p using (station_id)
where p.score >= 7 or p.checked_by is not null;
